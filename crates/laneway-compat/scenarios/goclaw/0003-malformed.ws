# A frame that is not a request gets a response without an id, and the connection stays open.

A> {"type":"req","id":"1","method":"connect"}
A< {"type":"res","id":"1","ok":true,"payload":{"protocol":3,"role":"owner","server":{"name":"laneway","version":"<version>"},"tenant_id":"default","user_id":""}}
A> {"type":"req","id":"2"
A< {"type":"res","id":"","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid frame: not JSON: EOF while parsing an object at line 1 column 22"}}
A> "text"
A< {"type":"res","id":"","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid frame: must be an object"}}
A> {"id":"3","method":"cron.list"}
A< {"type":"res","id":"","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid frame: type must be \"req\""}}
A> {"type":"req","id":"4","params":{}}
A< {"type":"res","id":"","ok":false,"error":{"code":"INVALID_REQUEST","message":"invalid frame: method is required"}}
A> {"type":"req","id":"5","method":"cron.list","params":"none"}
A< {"type":"res","id":"5","ok":true,"payload":{"jobs":[],"status":{"enabled":true,"jobs":0}}}
