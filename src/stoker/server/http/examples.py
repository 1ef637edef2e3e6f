"""Examples for each operation in the API's description. A test sends them and compares the responses' shape."""

from typing import Any

EXAMPLES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/queues/{queue}/jobs"): {
        "body": {"data": {"to": "ada@example.com"}, "priority": 5, "max_attempts": 5, "backoff": 1000},
        "answer": {"ok": True, "data": {"id": 64, "level": "commit"}, "id": 64, "level": "commit"},
    },
    ("POST", "/queues/{queue}/jobs/batch"): {
        "body": {"jobs": [{"data": 1}, {"data": 2, "delay": 60000}]},
        "answer": {"ok": True, "data": [64, 128], "failed": [], "level": "commit"},
    },
    ("POST", "/queues/{queue}/pull"): {
        "body": {"count": 10, "timeout": 5000, "worker": "mail-1"},
        "answer": {"ok": True, "token": 1, "data": [{"id": 64, "queue": "mail", "data": {"to": "ada@example.com"}}]},
    },
    ("POST", "/jobs/{id}/ack"): {"body": {"result": {"sent": True}}, "answer": {"ok": True, "data": {}}},
    ("POST", "/jobs/{id}/fail"): {"body": {"error": "connection refused"}},
    ("POST", "/jobs/{id}/progress"): {"body": {"progress": 40, "message": "rendering"}},
    ("POST", "/jobs/{id}/logs"): {"body": {"message": "started", "level": "info"}},
    ("POST", "/queues/{queue}/rate-limit"): {"body": {"limit": 100}},
    ("POST", "/queues/{queue}/concurrency"): {"body": {"limit": 10}},
    ("POST", "/queues/{queue}/clean"): {"body": {"state": "completed", "grace": 3600000}},
    ("POST", "/api/call/push"): {
        "body": {"queue": "mail", "payload": "eyJ0byI6ImFkYSJ9", "options": {"priority": 5}},
        "answer": {"ok": True, "body": {"id": 64, "created": True, "duplicate_by": None, "level": "commit"}},
    },
    ("POST", "/api/call/push_batch"): {"body": {"queue": "mail", "payloads": ["MQ==", "Mg=="], "request_key": "r-17"}},
    ("POST", "/api/call/pull"): {"body": {"queues": ["mail"], "count": 10, "wait_ms": 5000}},
    ("POST", "/api/call/get_stats"): {"body": {"queue": "mail"}},
    ("POST", "/api/call/list_queues"): {"body": {}, "answer": {"ok": True, "body": {"names": ["mail"]}}},
}
