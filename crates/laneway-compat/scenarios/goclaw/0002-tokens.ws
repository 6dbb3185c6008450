# The token identifies the client. A revoked token ends the socket.

% token of admin
% token of operator in acme
% token of viewer in acme
% token of worker in acme

A> {"type":"req","id":"1","method":"connect"}
A< {"type":"res","id":"1","ok":false,"error":{"code":"UNAUTHORIZED","message":"unauthorized: a token is required"}}
A> {"type":"req","id":"2","method":"connect","params":{"token":"lw_0123456789abcdef_nonsense"}}
A< {"type":"res","id":"2","ok":false,"error":{"code":"UNAUTHORIZED","message":"unauthorized: the token is not known, has expired or was revoked"}}
A> {"type":"req","id":"3","method":"connect","params":{"token":"<token of worker in acme>"}}
A< {"type":"res","id":"3","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: a worker's token opens no socket here"}}
A> {"type":"req","id":"4","method":"connect","params":{"token":"<token of viewer in acme>","user_id":"ann"}}
A< {"type":"res","id":"4","ok":true,"payload":{"protocol":3,"role":"viewer","server":{"name":"laneway","version":"<version>"},"tenant_id":"acme","user_id":"ann"}}
A> {"type":"req","id":"5","method":"cron.create","params":{"name":"a","message":"m","schedule":{"kind":"every","everyMs":60000}}}
A< {"type":"res","id":"5","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: cron.create requires operator role"}}

B> {"type":"req","id":"1","method":"connect","params":{"token":"<token of operator in acme>","tenant_id":"other"}}
B< {"type":"res","id":"1","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: the token is bound to another tenant; send the request without laneway-tenant"}}
B> {"type":"req","id":"2","method":"connect","params":{"token":"<token of operator in acme>","tenant_hint":"other","user_id":"bob"}}
B< {"type":"res","id":"2","ok":true,"payload":{"protocol":3,"role":"operator","server":{"name":"laneway","version":"<version>"},"tenant_id":"acme","user_id":"bob"}}

# A server-wide token may choose the tenant.
C> {"type":"req","id":"1","method":"connect","params":{"token":"<token of admin>","tenant_hint":"acme"}}
C< {"type":"res","id":"1","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"acme","user_id":""}}

% revoke <token of viewer in acme>
A< close 1008 the token was revoked
