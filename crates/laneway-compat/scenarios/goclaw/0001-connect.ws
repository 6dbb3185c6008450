# The first request must be `connect`. A server without tokens on loopback accepts every client.

A> {"type":"req","id":"1","method":"cron.list"}
A< {"type":"res","id":"1","ok":false,"error":{"code":"UNAUTHORIZED","message":"first request must be 'connect'"}}
A> {"type":"req","id":"2","method":"connect","params":{"user_id":"ann"}}
A< {"type":"res","id":"2","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"ann"}}
A> {"type":"req","id":"3","method":"cron.status"}
A< {"type":"res","id":"3","ok":true,"payload":{"enabled":true,"jobs":0}}
A> {"type":"req","id":"4","method":"cron.dance"}
A< {"type":"res","id":"4","ok":false,"error":{"code":"INVALID_REQUEST","message":"unknown method: cron.dance"}}
