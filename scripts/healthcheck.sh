#!/usr/bin/env bash
# Asks a server in this container whether it is ready; exits 1 while it is not.
#
#   MERLIN_SIM_HTTP_PORT   the server's HTTP port (default: 8000)
set -euo pipefail
url="http://127.0.0.1:${MERLIN_SIM_HTTP_PORT:-8000}/v2/health/ready"
exec python3 - "$url" <<'PY'
import sys
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=4) as answer:
        ready = answer.status == 200
except OSError as error:
    print(f"{sys.argv[1]}: {error}", file=sys.stderr)
    ready = False
sys.exit(0 if ready else 1)
PY
