"""Log records of OpenTelemetry."""
