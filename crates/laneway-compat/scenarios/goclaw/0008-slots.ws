# Slots come by themselves. A one-shot is gone after its run, and its log stays.

A> {"type":"req","id":"0","method":"connect","params":{"user_id":"ann"}}
A<
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"once","message":"say now","schedule":{"kind":"at","atMs":1700000060000},"deliver":true,"deliverChannel":"telegram","deliverTo":"42"}}
A<
A<
% advance 1m
A<
A<
A<
A<
A> {"type":"req","id":"2","method":"cron.list","params":{"includeDisabled":true}}
A<
A> {"type":"req","id":"3","method":"cron.runs","params":{"jobId":"<job 1>"}}
A<
