# A firing without a handler is queued and reported. Later slots are logged with the reason; the firing runs when a handler comes.
% agents leave

A> {"type":"req","id":"0","method":"connect"}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"tick","message":"say tick","schedule":{"kind":"every","everyMs":60000}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"tick","payload":{"kind":"agent_turn","message":"say tick"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000060000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
% advance 1m
A< {"type":"event","event":"cron","payload":{"action":"queued","jobId":"<job 1>","jobName":"tick","status":"queued"},"seq":3}
A> {"type":"req","id":"2","method":"cron.list"}
A< {"type":"res","id":"2","ok":true,"payload":{"jobs":[{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"tick","payload":{"kind":"agent_turn","message":"say tick"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"lastStatus":"queued","nextRunAtMs":1700000120000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}],"status":{"enabled":true,"jobs":1,"nextWakeAtMs":1700000120000}}}
A> {"type":"req","id":"3","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"3","ok":false,"error":{"code":"FAILED_PRECONDITION","message":"job <job 1> is already queued: its run has not started","retryable":true}}
% advance 1m
% look
A> {"type":"req","id":"4","method":"cron.runs","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"4","ok":true,"payload":{"entries":[{"error":"overlap: the firing before is queued: no handler, target or worker offers the kind \"agent_turn\"","jobId":"<job 1>","status":"skipped","ts":1700000120000}],"total":1}}
% agents come
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"tick"},"seq":6}
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"tick","status":"ok"},"seq":8}
A> {"type":"req","id":"5","method":"cron.list"}
A< {"type":"res","id":"5","ok":true,"payload":{"jobs":[{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"tick","payload":{"kind":"agent_turn","message":"say tick"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"lastRunAtMs":1700000120000,"lastStatus":"ok","nextRunAtMs":1700000180000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}],"status":{"enabled":true,"jobs":1,"nextWakeAtMs":1700000180000}}}
