# No client sees jobs of another tenant or of another user.

% token of admin in acme
% token of operator in acme
% token of admin in other

A> {"type":"req","id":"0","method":"connect","params":{"token":"<token of operator in acme>","user_id":"ann"}}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"operator","server":{"name":"laneway","version":"<version>"},"tenant_id":"acme","user_id":"ann"}}
B> {"type":"req","id":"0","method":"connect","params":{"token":"<token of operator in acme>","user_id":"bob"}}
B< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"operator","server":{"name":"laneway","version":"<version>"},"tenant_id":"acme","user_id":"bob"}}
C> {"type":"req","id":"0","method":"connect","params":{"token":"<token of admin in other>"}}
C< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"admin","server":{"name":"laneway","version":"<version>"},"tenant_id":"other","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"m","schedule":{"kind":"every","everyMs":60000}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"a","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000060000},"stateless":true,"tenantId":"acme","updatedAtMs":1700000000000,"userId":"ann","wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":4}
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"2","ok":true,"payload":{"ok":true,"ran":true}}
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"a","userId":"ann"},"seq":7}
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"a","status":"ok","userId":"ann"},"seq":9}
B< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":4}
B> {"type":"req","id":"1","method":"cron.delete","params":{"jobId":"<job 1>"}}
B< {"type":"res","id":"1","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: cron job"}}
B> {"type":"req","id":"2","method":"cron.runs"}
B< {"type":"res","id":"2","ok":true,"payload":{"entries":[],"total":0}}
C> {"type":"req","id":"1","method":"cron.delete","params":{"jobId":"<job 1>"}}
C< {"type":"res","id":"1","ok":false,"error":{"code":"NOT_FOUND","message":"job not found"}}
C> {"type":"req","id":"2","method":"cron.runs"}
C< {"type":"res","id":"2","ok":true,"payload":{"entries":[],"total":0}}
