// Package guides holds pages on common limits, one task each: see README.md. The code of each page is in a test of the
// same name, which runs it.
package guides
