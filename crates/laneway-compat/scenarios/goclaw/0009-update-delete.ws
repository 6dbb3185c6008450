# A patch changes the fields that it names. The zone stays unless the patch has another one.

A> {"type":"req","id":"0","method":"connect"}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"m","schedule":{"kind":"cron","expr":"0 9 * * *","tz":"Asia/Saigon"}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"a","payload":{"kind":"agent_turn","message":"m"},"schedule":{"expr":"0 9 * * *","kind":"cron","tz":"Asia/Saigon"},"state":{"nextRunAtMs":1700013600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
A> {"type":"req","id":"2","method":"cron.update","params":{"id":"<job 1>","patch":{"schedule":{"expr":"0 10 * * *"},"name":"b","agentId":"writer"}}}
A< {"type":"res","id":"2","ok":true,"payload":{"job":{"agentId":"writer","createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"b","payload":{"kind":"agent_turn","message":"m"},"schedule":{"expr":"0 10 * * *","kind":"cron","tz":"Asia/Saigon"},"state":{"nextRunAtMs":1700017200000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"updated","key":"<job 1>"},"seq":2}
A> {"type":"req","id":"3","method":"cron.update","params":{"id":"<job 1>","patch":{"name":"Not A Slug"}}}
A< {"type":"res","id":"3","ok":false,"error":{"code":"INVALID_REQUEST","message":"name must be a valid slug (lowercase letters, numbers, hyphens only)"}}
A> {"type":"req","id":"4","method":"cron.update","params":{"id":"<job 1>","patch":{"schedule":{"kind":"every","everyMs":60000},"agentId":""}}}
A< {"type":"res","id":"4","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"b","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000060000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"updated","key":"<job 1>"},"seq":4}
A> {"type":"req","id":"5","method":"cron.delete","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"5","ok":true,"payload":{"deleted":true}}
A< {"type":"event","event":"cache:cron","payload":{"action":"deleted","key":"<job 1>"},"seq":5}
A> {"type":"req","id":"6","method":"cron.delete","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"6","ok":false,"error":{"code":"NOT_FOUND","message":"job not found"}}
