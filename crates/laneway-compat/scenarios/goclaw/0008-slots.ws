# Slots fire on time. A one-shot is deleted after its firing, and its log is kept.

A> {"type":"req","id":"0","method":"connect","params":{"user_id":"ann"}}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"ann"}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"once","message":"say now","schedule":{"kind":"at","atMs":1700000060000},"deliver":true,"deliverChannel":"telegram","deliverTo":"42"}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deleteAfterRun":true,"deliver":true,"deliverChannel":"telegram","deliverTo":"42","enabled":true,"id":"<job 1>","name":"once","payload":{"kind":"agent_turn","message":"say now"},"schedule":{"atMs":1700000060000,"kind":"at"},"state":{"nextRunAtMs":1700000060000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"userId":"ann","wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
% advance 1m
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"once","userId":"ann"},"seq":4}
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"once","status":"ok","userId":"ann"},"seq":6}
A< {"type":"event","event":"cache:cron","payload":{"action":"deleted","key":"<job 1>"},"seq":7}
A< {"type":"event","event":"outbound","payload":{"channel":"telegram","content":"now","cron_job":"<job 1>","event":6,"job":"<run 1>","session":"agent:default:cron:<job 1>","status":"ok","to":"42","user_id":"ann"},"seq":8}
A> {"type":"req","id":"2","method":"cron.list","params":{"includeDisabled":true}}
A< {"type":"res","id":"2","ok":true,"payload":{"jobs":[],"status":{"enabled":true,"jobs":0}}}
A> {"type":"req","id":"3","method":"cron.runs","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"3","ok":true,"payload":{"entries":[{"jobId":"<job 1>","status":"ok","summary":"now","ts":1700000060000}],"total":1}}
