package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/restate/orderkey"
)

// "Tries the addresses in turn until one answers, each at most once": a transcript of calls.
func TestAddressesInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &addresses{}
		a.set([]string{"a/", "b", "c"})
		for _, step := range []struct {
			what  string
			nodes map[string]string // the fault of each node
			asked []string
			fails bool
		}{
			{"all are well", nil, []string{"a"}, false},
			{"one refuses", map[string]string{"a": "refuses"}, []string{"a", "b"}, false},
			{"the next call begins where the last was answered", nil, []string{"b"}, false},
			{"one is silent", map[string]string{"b": "silent"}, []string{"b", "c"}, false},
			{"around the corner", map[string]string{"c": "refuses", "a": "silent"}, []string{"c", "a", "b"}, false},
			{"nobody is there", map[string]string{"a": "refuses", "b": "refuses", "c": "refuses"}, []string{"b", "c", "a"}, true},
			{"an error that every node would give", map[string]string{"b": "no"}, []string{"b"}, true},
		} {
			var asked []string
			err := a.inTurn(t.Context(), func(ctx context.Context, i int) (bool, error) {
				asked = append(asked, a.urls[i])
				switch a.urls[i] + step.nodes[a.urls[i]] {
				case a.urls[i] + "silent":
					<-ctx.Done()
					return false, ctx.Err()
				case a.urls[i] + "refuses":
					return false, errors.New("refused")
				case a.urls[i] + "no":
					return true, errors.New("no")
				}
				return true, nil
			})
			if !slices.Equal(asked, step.asked) || (err != nil) != step.fails {
				t.Errorf("%s: asked %v, %v; want %v", step.what, asked, err, step.asked)
			}
		}
		// A caller that has gone is not retried.
		gone, leave := context.WithCancel(t.Context())
		calls := 0
		_ = a.inTurn(gone, func(context.Context, int) (bool, error) {
			calls++
			leave()
			return false, errors.New("refused")
		})
		if calls != 1 {
			t.Errorf("%d calls for nobody", calls)
		}
	})
}

// "Restate executes the call once, however often it receives the order": both nodes get the same order, and each call
// is another order.
func TestClientSendsOneOrderToAllNodes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var orders []orderkey.Order
	node := func(status int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			var o orderkey.Order
			if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
				t.Error(err)
			}
			orders = append(orders, o)
			w.WriteHeader(status)
			_, _ = fmt.Fprint(w, `{}`)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	hc := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	c := NewClient(hc, testKeys, node(http.StatusServiceUnavailable), node(http.StatusOK))
	if _, err := c.Pause(t.Context(), "n", operator); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resume(t.Context(), "n", operator); err != nil {
		t.Fatal(err)
	}
	if len(orders) != 3 || orders[0] != orders[1] || orders[0].ID == "" || orders[2].ID == orders[0].ID {
		t.Errorf("orders %+v: want one for two nodes, and another", orders)
	}
	nobody := NewClient(hc, testKeys, "http://127.0.0.1:1", "http://127.0.0.1:2")
	if _, err := nobody.Status(t.Context(), "n"); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("nobody there: %v", err)
	}
}
