# The list is newest first; disabled jobs appear only on request.

A> {"type":"req","id":"0","method":"connect"}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"one","message":"m","schedule":{"kind":"every","everyMs":60000}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"one","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000060000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
% advance 1s
A> {"type":"req","id":"2","method":"cron.create","params":{"name":"two","message":"m","schedule":{"kind":"every","everyMs":60000}}}
A< {"type":"res","id":"2","ok":true,"payload":{"job":{"createdAtMs":1700000001000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 2>","name":"two","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000061000},"stateless":true,"tenantId":"default","updatedAtMs":1700000001000,"wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 2>"},"seq":2}
A> {"type":"req","id":"3","method":"cron.toggle","params":{"jobId":"<job 1>"}}
A< {"type":"res","id":"3","ok":true,"payload":{"enabled":false,"jobId":"<job 1>"}}
A< {"type":"event","event":"cache:cron","payload":{"action":"disabled","key":"<job 1>"},"seq":3}
A> {"type":"req","id":"4","method":"cron.list"}
A< {"type":"res","id":"4","ok":true,"payload":{"jobs":[{"createdAtMs":1700000001000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 2>","name":"two","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000061000},"stateless":true,"tenantId":"default","updatedAtMs":1700000001000,"wakeHeartbeat":false}],"status":{"enabled":true,"jobs":1,"nextWakeAtMs":1700000061000}}}
A> {"type":"req","id":"5","method":"cron.list","params":{"includeDisabled":true}}
A< {"type":"res","id":"5","ok":true,"payload":{"jobs":[{"createdAtMs":1700000001000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 2>","name":"two","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{"nextRunAtMs":1700000061000},"stateless":true,"tenantId":"default","updatedAtMs":1700000001000,"wakeHeartbeat":false},{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":false,"id":"<job 1>","name":"one","payload":{"kind":"agent_turn","message":"m"},"schedule":{"everyMs":60000,"kind":"every"},"state":{},"stateless":true,"tenantId":"default","updatedAtMs":1700000001000,"wakeHeartbeat":false}],"status":{"enabled":true,"jobs":1,"nextWakeAtMs":1700000061000}}}
A> {"type":"req","id":"6","method":"cron.status"}
A< {"type":"res","id":"6","ok":true,"payload":{"enabled":true,"jobs":1,"nextWakeAtMs":1700000061000}}
