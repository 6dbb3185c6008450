# A permanent failure is not retried; a manual fire while a firing is active is rejected.

A> {"type":"req","id":"0","method":"connect"}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"bad","message":"fail","schedule":{"kind":"every","everyMs":3600000}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"bad","payload":{"kind":"agent_turn","message":"fail"},"schedule":{"everyMs":3600000,"kind":"every"},"state":{"nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"2","ok":true,"payload":{"ok":true,"ran":true}}
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"bad"},"seq":4}
A< {"type":"event","event":"cron","payload":{"action":"error","error":"the model is away","jobId":"<job 1>","jobName":"bad","status":"error"},"seq":6}
A> {"type":"req","id":"3","method":"cron.list"}
A< {"type":"res","id":"3","ok":true,"payload":{"jobs":[{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"bad","payload":{"kind":"agent_turn","message":"fail"},"schedule":{"everyMs":3600000,"kind":"every"},"state":{"lastError":"the model is away","lastRunAtMs":1700000000000,"lastStatus":"error","nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}],"status":{"enabled":true,"jobs":1,"nextWakeAtMs":1700003600000}}}
A> {"type":"req","id":"4","method":"cron.update","params":{"jobId":"<job 1>","patch":{"message":"hold"}}}
A< {"type":"res","id":"4","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"bad","payload":{"kind":"agent_turn","message":"hold"},"schedule":{"everyMs":3600000,"kind":"every"},"state":{"lastError":"the model is away","lastRunAtMs":1700000000000,"lastStatus":"error","nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"updated","key":"<job 1>"},"seq":7}
A> {"type":"req","id":"5","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"5","ok":true,"payload":{"ok":true,"ran":true}}
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"bad"},"seq":10}
A> {"type":"req","id":"6","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"6","ok":false,"error":{"code":"FAILED_PRECONDITION","message":"job <job 1> is already running","retryable":true}}
% release
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"bad","status":"ok"},"seq":13}
A> {"type":"req","id":"7","method":"cron.runs"}
A< {"type":"res","id":"7","ok":true,"payload":{"entries":[{"jobId":"<job 1>","status":"ok","summary":"held","ts":1700000000000},{"error":"the model is away","jobId":"<job 1>","status":"error","ts":1700000000000}],"total":2}}
