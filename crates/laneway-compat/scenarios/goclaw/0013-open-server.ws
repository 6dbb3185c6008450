# Defect 14: a server without tokens on loopback has nothing to check a token against, and accepts the request.

A> {"type":"req","id":"1","method":"connect","params":{"token":"a-token-of-theirs","user_id":"ann"}}
A< {"type":"res","id":"1","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"ann"}}
