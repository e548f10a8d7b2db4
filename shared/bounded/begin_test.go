package bounded

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A call above the bound of its address gets a bare status and is counted. A call of another address, and a call after
// the earlier calls have ended, is served.
func TestBegin(t *testing.T) {
	var refused []Bound
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	handler := Begin(Calls, 1, func(b Bound) { refused = append(refused, b) },
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			entered <- struct{}{}
			<-leave
			_, _ = w.Write([]byte("served"))
		}))
	call := func(c *Caller) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		ctx := context.WithValue(t.Context(), connKey{}, c)
		handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	one, other := new(Caller), new(Caller)
	ended := make(chan struct{}, 2)
	for _, c := range []*Caller{one, other} {
		go func() { call(c); ended <- struct{}{} }()
		<-entered
	}
	w := call(one)
	if w.Code != http.StatusServiceUnavailable || w.Body.Len() != 0 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a further call: %d %q", w.Code, w.Body)
	}
	if len(refused) != 1 || refused[0] != BoundCaller {
		t.Errorf("%v are counted", refused)
	}
	close(leave)
	<-ended
	<-ended
	if w := call(one); w.Body.String() != "served" {
		t.Errorf("after the first has ended: %d %q", w.Code, w.Body)
	}
}
