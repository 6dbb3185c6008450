# A job with the credentials of a user is fired, changed and enabled only with the same credentials.

A> {"type":"req","id":"0","method":"connect","params":{"user_id":"u","credential_user_id":"c"}}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"u"}}
B> {"type":"req","id":"0","method":"connect","params":{"user_id":"u"}}
B< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"u"}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"who","schedule":{"kind":"every","everyMs":3600000}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"a","payload":{"kind":"agent_turn","message":"who"},"schedule":{"everyMs":3600000,"kind":"every"},"state":{"nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"userId":"u","wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
B< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
B> {"type":"req","id":"1","method":"cron.run","params":{"jobId":"<job 1>"}}
B< {"type":"res","id":"1","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: credential context"}}
B> {"type":"req","id":"2","method":"cron.toggle","params":{"jobId":"<job 1>","enabled":false}}
B< {"type":"res","id":"2","ok":true,"payload":{"enabled":false,"jobId":"<job 1>"}}
B< {"type":"event","event":"cache:cron","payload":{"action":"disabled","key":"<job 1>"},"seq":3}
B> {"type":"req","id":"3","method":"cron.toggle","params":{"jobId":"<job 1>","enabled":true}}
B< {"type":"res","id":"3","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: credential context"}}
B> {"type":"req","id":"4","method":"cron.update","params":{"jobId":"<job 1>","patch":{"message":"x"}}}
B< {"type":"res","id":"4","ok":false,"error":{"code":"UNAUTHORIZED","message":"permission denied: credential context"}}
A< {"type":"event","event":"cache:cron","payload":{"action":"disabled","key":"<job 1>"},"seq":3}
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"2","ok":true,"payload":{"ok":true,"ran":true}}
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"a","userId":"u"},"seq":8}
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"a","status":"ok","userId":"u"},"seq":10}
A> {"type":"req","id":"3","method":"cron.runs"}
A< {"type":"res","id":"3","ok":true,"payload":{"entries":[{"jobId":"<job 1>","status":"ok","summary":"default in agent:default:cron:<job 1>, credentials of c","ts":1700000000000}],"total":1}}
B< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"a","userId":"u"},"seq":8}
B< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"a","status":"ok","userId":"u"},"seq":10}
B> {"type":"req","id":"5","method":"cron.delete","params":{"jobId":"<job 1>"}}
B< {"type":"res","id":"5","ok":true,"payload":{"deleted":true}}
