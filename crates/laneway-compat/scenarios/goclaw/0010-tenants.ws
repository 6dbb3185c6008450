# Nobody sees another tenant's jobs, nor another user's.

% token of admin in acme
% token of operator in acme
% token of admin in other

A> {"type":"req","id":"0","method":"connect","params":{"token":"<token of operator in acme>","user_id":"ann"}}
A<
B> {"type":"req","id":"0","method":"connect","params":{"token":"<token of operator in acme>","user_id":"bob"}}
B<
C> {"type":"req","id":"0","method":"connect","params":{"token":"<token of admin in other>"}}
C<
A> {"type":"req","id":"1","method":"cron.create","params":{"name":"a","message":"m","schedule":{"kind":"every","everyMs":60000}}}
A<
A<
A> {"type":"req","id":"2","method":"cron.run","params":{"jobId":"<job 1>"}}
A<
A<
A<
B<
B> {"type":"req","id":"1","method":"cron.delete","params":{"jobId":"<job 1>"}}
B<
B> {"type":"req","id":"2","method":"cron.runs"}
B<
C> {"type":"req","id":"1","method":"cron.delete","params":{"jobId":"<job 1>"}}
C<
C> {"type":"req","id":"2","method":"cron.runs"}
C<
