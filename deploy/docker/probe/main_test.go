package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// "exits 0 if a URL answers 200 … and else says why not"
func TestProbe(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	defer server.Close()
	if err := probe(server.URL); err != nil {
		t.Error(err)
	}
	status = http.StatusServiceUnavailable
	if err := probe(server.URL); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("of 503: %v", err)
	}
	server.Close()
	if err := probe(server.URL); err == nil {
		t.Error("without a server: no error")
	}
}
