package handlers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestInvocationsAreBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			entered <- struct{}{}
			<-leave
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
	}), 1, 10))
	defer server.Close()
	post := func(path string, body io.Reader, want int, says string) {
		t.Helper()
		res, err := http.Post(server.URL+path, "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want || !strings.Contains(string(text), says) {
			t.Errorf("%s: %s %q %v, want %d %q", path, res.Status, text, err, want, says)
		}
	}
	post("/", strings.NewReader("0123456789"), http.StatusOK, "")
	post("/", strings.NewReader("0123456789a"), http.StatusRequestEntityTooLarge, "at most 10")
	post("/", io.MultiReader(strings.NewReader("01234"), strings.NewReader("56789a")), http.StatusTeapot, "too large")

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		post("/wait", strings.NewReader(""), http.StatusOK, "")
	}()
	<-entered
	post("/", strings.NewReader(""), http.StatusServiceUnavailable, "1 invocations run already")
	close(leave)
	<-ended
	post("/", strings.NewReader(""), http.StatusOK, "")
}
