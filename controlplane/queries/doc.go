// Package queries holds guardrails that a Prometheus measures, and a client of its HTTP API.
package queries
