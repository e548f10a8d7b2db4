package node

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// The real limiter's hot and denied keys, by every door.
func TestTopKeysAtEveryDoor(t *testing.T) {
	limiter := newLimiter(t, nil)
	h := start(t, limiter)
	for i, door := range doors {
		client := door.open(t, h)
		for range i + 3 {
			if _, err := ask(t.Context(), client, "busy", 4); err != nil {
				t.Fatal(err)
			}
		}
		for _, by := range []weirv1.TopBy{weirv1.TopBy_TOP_BY_HOT, weirv1.TopBy_TOP_BY_DENIED} {
			var answer *connect.Response[weirv1.TopKeysResponse]
			await.True(t, "the keys may be walked", func() (ok bool) {
				var err error
				answer, err = client.TopKeys(t.Context(), connect.NewRequest(&weirv1.TopKeysRequest{Workspace: "acme", Namespace: "api", By: by}))
				if err != nil && connect.CodeOf(err) != connect.CodeUnavailable {
					t.Fatalf("%s: %v", door.name, err)
				}
				return err == nil
			})
			if i == 0 && by == weirv1.TopBy_TOP_BY_DENIED {
				continue // no key is over the limit yet
			}
			if keys := answer.Msg.GetKeys(); len(keys) != 1 || keys[0].GetIdentifier() != "busy" || keys[0].GetCount() < 1 || keys[0].GetWorkspace() != "acme" {
				t.Errorf("%s, by %v: %v", door.name, by, keys)
			}
		}
	}
}

// An unknown limit is left out, and names can have any bytes.
func TestTopKeysAreWorded(t *testing.T) {
	limiter := scripted{top: func(q dataplane.TopQuery) (dataplane.TopKeys, error) {
		if q.By != dataplane.TopDenied || q.Limit != topKeysDefault || q.Workspace+q.Namespace != "" || q.Visible != nil {
			t.Errorf("asked for %+v", q)
		}
		return dataplane.TopKeys{Keys: []dataplane.TopKey{
			{Workspace: "w", Namespace: "n", Identifier: "a\xff", Limit: -1, Count: 3, More: 2},
			{Workspace: "w", Namespace: "n", Identifier: "b", Limit: 0, Count: 1},
		}}, nil
	}}
	h := start(t, limiter)
	answer, err := doors[0].open(t, h).TopKeys(t.Context(), connect.NewRequest(&weirv1.TopKeysRequest{By: weirv1.TopBy_TOP_BY_DENIED}))
	if err != nil {
		t.Fatal(err)
	}
	keys := answer.Msg.GetKeys()
	if keys[0].Limit != nil || keys[0].GetIdentifier() != "a\uFFFD" || keys[0].GetMore() != 2 || keys[1].Limit == nil || answer.Msg.GetSinceMs() != 0 {
		t.Errorf("%v", answer.Msg)
	}
}

// A listing too soon after another is unavailable. An invalid request returns its fault.
func TestTopKeysRefuses(t *testing.T) {
	h := start(t, scripted{top: func(dataplane.TopQuery) (dataplane.TopKeys, error) { return dataplane.TopKeys{}, dataplane.ErrTopBusy }})
	for _, door := range []door{doors[0], doors[len(doors)-1]} {
		client := door.open(t, h)
		_, err := client.TopKeys(t.Context(), connect.NewRequest(&weirv1.TopKeysRequest{By: weirv1.TopBy_TOP_BY_HOT}))
		if connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", door.name, err)
		}
		_, err = client.TopKeys(t.Context(), connect.NewRequest(&weirv1.TopKeysRequest{Workspace: strings.Repeat("w", 192), Limit: 101}))
		for _, says := range []string{"workspace is 192", "by is 0", "limit is 101 (1 to 100"} {
			if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", door.name, err, says)
			}
		}
	}
}
