# Every type of schedule, and the rejected ones.

A> {"type":"req","id":"0","method":"connect","params":{"user_id":"ann"}}
A< {"type":"res","id":"0","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":"ann"}}
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"standup","message":"call the team","schedule":{"kind":"cron","expr":"0 9 * * 1-5","tz":"Europe/Berlin"}}}
A< {"type":"res","id":"1","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 1>","name":"standup","payload":{"kind":"agent_turn","message":"call the team"},"schedule":{"expr":"0 9 * * 1-5","kind":"cron","tz":"Europe/Berlin"},"state":{"nextRunAtMs":1700035200000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"userId":"ann","wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 1>"},"seq":1}
A> {"type":"req","id":"2","method":"cron.create","params":{"name":"pulse","message":"look around","schedule":{"kind":"every","everyMs":1800000},"agentId":"scout","stateless":false,"wakeHeartbeat":true,"command":"/look"}}
A< {"type":"res","id":"2","ok":true,"payload":{"job":{"agentId":"scout","createdAtMs":1700000000000,"deliver":false,"deliverChannel":"","deliverTo":"","enabled":true,"id":"<job 2>","name":"pulse","payload":{"command":"/look","kind":"agent_turn","message":"look around"},"schedule":{"everyMs":1800000,"kind":"every"},"state":{"nextRunAtMs":1700001800000},"stateless":false,"tenantId":"default","updatedAtMs":1700000000000,"userId":"ann","wakeHeartbeat":true}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 2>"},"seq":2}
A> {"type":"req","id":"3","method":"cron.create","params":{"name":"reminder","message":"dentist","schedule":{"kind":"at","atMs":1700003600000},"deliver":true,"deliverChannel":"telegram","deliverTo":"42"}}
A< {"type":"res","id":"3","ok":true,"payload":{"job":{"createdAtMs":1700000000000,"deleteAfterRun":true,"deliver":true,"deliverChannel":"telegram","deliverTo":"42","enabled":true,"id":"<job 3>","name":"reminder","payload":{"kind":"agent_turn","message":"dentist"},"schedule":{"atMs":1700003600000,"kind":"at"},"state":{"nextRunAtMs":1700003600000},"stateless":true,"tenantId":"default","updatedAtMs":1700000000000,"userId":"ann","wakeHeartbeat":false}}}
A< {"type":"event","event":"cache:cron","payload":{"action":"created","key":"<job 3>"},"seq":3}
A> {"type":"req","id":"4","method":"cron.create","params":{"name":"standup","message":"again","schedule":{"kind":"every","everyMs":1000}}}
A< {"type":"res","id":"4","ok":false,"error":{"code":"ALREADY_EXISTS","message":"create cron job: name: there is a schedule \"standup\" already; choose another name"}}
A> {"type":"req","id":"5","method":"cron.create","params":{"name":"x","message":"m","schedule":{"kind":"cron","expr":"61 * * * *"}}}
A< {"type":"res","id":"5","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid cron expression: 61 * * * *","details":{"reason":"minute: \"61\" is not in 0-59"}}}
A> {"type":"req","id":"6","method":"cron.create","params":{"name":"x","message":"m","schedule":{"kind":"cron","expr":"0 0 31 4 *"}}}
A< {"type":"res","id":"6","ok":false,"error":{"code":"INVALID_REQUEST","message":"cron job has no future run: cron schedule has no valid next execution"}}
A> {"type":"req","id":"7","method":"cron.create","params":{"name":"x","message":"m","schedule":{"kind":"at","atMs":1}}}
A< {"type":"res","id":"7","ok":false,"error":{"code":"INVALID_REQUEST","message":"cron job has no future run: at schedule is already in the past"}}
A> {"type":"req","id":"8","method":"cron.create","params":{"name":"x","message":"m","schedule":{"kind":"every","everyMs":10}}}
A< {"type":"res","id":"8","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid schedule: timing.every: 10 ms is not an interval; give 100 ms to ten years"}}
