"""`python -m proxy`: the same as the command mcp-routing-proxy."""

import sys

from proxy.cli import main

sys.exit(main())
