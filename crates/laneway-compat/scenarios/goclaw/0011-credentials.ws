# A job made with somebody's credentials is run, changed and switched on only with the same ones.

A> {"type":"req","id":"0","method":"connect","params":{"user_id":"u","credential_user_id":"c"}}
A<
B> {"type":"req","id":"0","method":"connect","params":{"user_id":"u"}}
B<
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"who","schedule":{"kind":"every","everyMs":3600000}}}
A<
A<
B<
B> {"type":"req","id":"1","method":"cron.run","params":{"jobId":"<job 1>"}}
B<
B> {"type":"req","id":"2","method":"cron.toggle","params":{"jobId":"<job 1>","enabled":false}}
B<
B<
B> {"type":"req","id":"3","method":"cron.toggle","params":{"jobId":"<job 1>","enabled":true}}
B<
B> {"type":"req","id":"4","method":"cron.update","params":{"jobId":"<job 1>","patch":{"message":"x"}}}
B<
A<
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A<
A<
A<
A> {"type":"req","id":"3","method":"cron.runs"}
A<
B<
B<
B> {"type":"req","id":"5","method":"cron.delete","params":{"jobId":"<job 1>"}}
B<
