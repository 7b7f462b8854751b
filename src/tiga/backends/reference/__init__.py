"""The numpy oracle: every op as its plain meaning."""
