package main

import (
	"net/http"
	"strings"
)

// spanName returns the name of a call's span: its method's, as gRPC has it. Pages of the console and health have none.
func spanName(r *http.Request) string {
	if path, ok := strings.CutPrefix(r.URL.Path, "/weir.control.v1."); ok && strings.Count(path, "/") == 1 {
		return "weir.control.v1." + path
	}
	return ""
}
