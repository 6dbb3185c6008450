# A manual fire: the response comes when a job exists, the events when it starts and ends.

A> {"type":"req","id":"0","method":"connect"}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"greet","message":"say good morning","schedule":{"kind":"every","everyMs":3600000},"deliver":true,"deliverChannel":"telegram","deliverTo":"42"}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":true,"deliverChannel":"telegram","deliverTo":"42","enabled":true,"id":"<job 1>","name":"greet","payload":{"kind":"agent_turn","message":"say good morning"},"schedule":{"everyMs":3600000,"kind":"every"},"state":{"nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"2","ok":true,"payload":{"ok":true,"ran":true}}
A< {"type":"event","event":"cron","payload":{"action":"running","jobId":"<job 1>","jobName":"greet"},"seq":4}
A< {"type":"event","event":"cron","payload":{"action":"completed","jobId":"<job 1>","jobName":"greet","status":"ok"},"seq":6}
A< {"type":"event","event":"outbound","payload":{"channel":"telegram","content":"good morning","cron_job":"<job 1>","event":6,"job":"<run 1>","session":"agent:default:cron:<job 1>","status":"ok","to":"42"},"seq":7}
A> {"type":"req","id":"3","method":"cron.run","params":{"id":"<job 1>","mode":"due"}}
A< {"type":"res","id":"3","ok":true,"payload":{"ok":true,"ran":false,"reason":"not-due"}}
A> {"type":"req","id":"4","method":"cron.runs","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"4","ok":true,"payload":{"entries":[{"jobId":"<job 1>","status":"ok","summary":"good morning","ts":1700000000000}],"total":1}}
A> {"type":"req","id":"5","method":"cron.run","params":{"jobId":"sch_00000000-0000-0000-0000-000000000000"}}
A< {"type":"res","id":"5","ok":false,"error":{"code":"NOT_FOUND","message":"job not found"}}
