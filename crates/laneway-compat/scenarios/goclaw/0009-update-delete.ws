# A patch changes what it names. The zone stays unless another one is given.

A> {"type":"req","id":"0","method":"connect"}
A<
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"m","schedule":{"kind":"cron","expr":"0 9 * * *","tz":"Asia/Saigon"}}}
A<
A<
A> {"type":"req","id":"2","method":"cron.update","params":{"id":"<job 1>","patch":{"schedule":{"expr":"0 10 * * *"},"name":"b","agentId":"writer"}}}
A<
A<
A> {"type":"req","id":"3","method":"cron.update","params":{"id":"<job 1>","patch":{"name":"Not A Slug"}}}
A<
A> {"type":"req","id":"4","method":"cron.update","params":{"id":"<job 1>","patch":{"schedule":{"kind":"every","everyMs":60000},"agentId":""}}}
A<
A<
A> {"type":"req","id":"5","method":"cron.delete","params":{"jobId":"<job 1>"}}
A<
A<
A> {"type":"req","id":"6","method":"cron.delete","params":{"jobId":"<job 1>"}}
A<
