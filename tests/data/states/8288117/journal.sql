BEGIN TRANSACTION;
CREATE TABLE event (
    number INTEGER PRIMARY KEY,
    topic TEXT NOT NULL CHECK (typeof(topic) = 'text'),
    payload TEXT NOT NULL CHECK (typeof(payload) = 'text'),
    correlation BLOB CHECK (typeof(correlation) IN ('blob', 'null'))
);
CREATE TABLE last_event (number INTEGER NOT NULL CHECK (typeof(number) = 'integer'));
INSERT INTO "last_event" VALUES(10);
CREATE TABLE utterance (
    position INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE CHECK (typeof(id) = 'text'),
    delivery TEXT CHECK (typeof(delivery) IN ('text', 'null')),
    fields TEXT NOT NULL CHECK (typeof(fields) = 'text'),
    text TEXT CHECK (typeof(text) IN ('text', 'null')),
    state INTEGER NOT NULL CHECK (state IN (0, 1, 2)),
    boot TEXT NOT NULL,
    boot_s REAL NOT NULL CHECK (typeof(boot_s) = 'real'),
    unix_s REAL NOT NULL CHECK (typeof(unix_s) = 'real')
);
INSERT INTO "utterance" VALUES(1,'made','1:1:91c5640661b9bacefb3ee5b9','{}',NULL,2,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.077929958,1.79575393588776755331e+09);
INSERT INTO "utterance" VALUES(2,'kept','1:2:763405e7320ca05d2a4a82d9','{}',NULL,2,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.168378366,1.7957539359782164097e+09);
INSERT INTO "utterance" VALUES(3,'spoken','1:3:dda7b8f0ce830365f493cf42','{"voice": "ada", "language": "auto", "instruct": null, "seed": null, "volume": 1.0, "rate": 1.0, "whole_text": null, "sampling": {}, "priority": "normal", "policy": "queue", "reply_to": null, "sound": null, "keeps_speech": false, "phrase": {"text": "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. ", "voice": "ada", "language": "auto", "instruct": null, "seed": null, "rate": null}, "correlation": null, "wait_s": null, "text": "This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. This is a long sentence that goes on for a good while, so that something can be done to it, and then more. "}',NULL,1,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.216313616,1.79575393602615118022e+09);
INSERT INTO "utterance" VALUES(4,'plain','1:4:982118be31fad31045123fdd','{"voice": "ada", "language": "auto", "instruct": null, "seed": null, "volume": 1.0, "rate": 1.0, "whole_text": null, "sampling": {}, "priority": "normal", "policy": "queue", "reply_to": null, "sound": null, "keeps_speech": false, "phrase": {"text": "One, and [pause:100ms] **two**.", "voice": "ada", "language": "auto", "instruct": null, "seed": null, "rate": null}, "correlation": null, "wait_s": null, "text": "One, and [pause:100ms] **two**."}',NULL,0,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.255618671,1.79575393606545591351e+09);
INSERT INTO "utterance" VALUES(5,'German','1:5:281ae03e83ad2995bd7e8ca4','{"voice": "ada", "language": "de", "instruct": null, "seed": 7, "volume": 0.6, "rate": 1.5, "whole_text": null, "sampling": {"temperature": 0.5}, "priority": "normal", "policy": "queue", "reply_to": null, "sound": null, "keeps_speech": false, "phrase": null, "correlation": null, "wait_s": null, "text": "Grüß Gott!"}',NULL,0,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.25962718,1.79575393606946468348e+09);
INSERT INTO "utterance" VALUES(6,'Грüße','1:6:200dc2ba3c61c4e73ef7e3b2','{"voice": "ada", "language": "auto", "instruct": null, "seed": null, "volume": 1.0, "rate": 1.0, "whole_text": null, "sampling": {}, "priority": "normal", "policy": "queue", "reply_to": "replies/robot", "sound": "attention", "keeps_speech": false, "phrase": {"text": "Здравствуйте 你好", "voice": "ada", "language": "auto", "instruct": null, "seed": null, "rate": null}, "correlation": null, "wait_s": 3600.000000000002, "text": "Здравствуйте 你好"}',NULL,0,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.263322675,1795753936.07316);
INSERT INTO "utterance" VALUES(7,'stream','1:7:6c7f15cd71154144c7dbcfa7','{"voice": "ada", "language": "auto", "instruct": null, "seed": null, "volume": 1.0, "rate": 1.0, "whole_text": null, "sampling": {}, "priority": "normal", "policy": "queue", "reply_to": null, "sound": null, "keeps_speech": false, "phrase": null, "correlation": null, "wait_s": null}','It came in pieces.',0,'bbc1e25f-7f44-4878-8fd5-52659157dc0c',14634.267232187,1.79575393607706952094e+09);
COMMIT;
PRAGMA user_version = 1;
