package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/adapters/gubernator"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/bounded"
	"github.com/weirhq/weir/shared/window"
)

// hung is an origin that answers no read, and signals its first read.
type hung struct {
	*memstore.Origin
	reads chan struct{}
}

func (h hung) Read(ctx context.Context, _ []window.Cell) (store.Reply, error) {
	select {
	case h.reads <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return store.Reply{}, ctx.Err()
}

// A long body that waits for Redis leaves its place to other long bodies.
func TestALongBodyLeavesItsPlaceWhileItWaits(t *testing.T) {
	origin := hung{memstore.NewOrigin(memstore.OriginOptions{}), make(chan struct{}, 1)}
	l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: origin, Breaker: dataplane.Breaker{CallsMin: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	server, err := gubernator.New(l, "acme")
	if err != nil {
		t.Fatal(err)
	}
	memory, next := bounded.NewMemory(bounded.Calls, 64<<20), server.Handler()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // as node's gate
		call := new(bounded.Call)
		defer call.End()
		_, err := call.Read(w, r, memory, bounded.CallerOf(r.Context()), bounded.Route{Bytes: gubernator.BodyMax})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r.WithContext(call.Context(r.Context())))
	}))
	s.Config.ConnContext = bounded.ConnContext
	s.Start()
	defer s.Close()
	body := func(prefix string) string {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `,{"name":"requests_per_day","unique_key":"%s-%040d","hits":"1","limit":"10","duration":"86400000"}`, prefix, i)
		}
		return `{"requests":[` + b.String()[1:] + `]}`
	}
	post := func(prefix string) int {
		res, err := http.Post(s.URL+"/v1/GetRateLimits", "application/json", strings.NewReader(body(prefix)))
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	places := max(1, runtime.GOMAXPROCS(0)/2)
	codes := make(chan int, places)
	for i := range places {
		go func() { codes <- post(fmt.Sprint("first", i)) }()
	}
	<-origin.reads
	if code := post("second"); code != 200 {
		t.Errorf("the second call: %d", code)
	}
	for range places {
		if code := <-codes; code != 200 {
			t.Errorf("a first call: %d", code)
		}
	}
}

// Much metadata, which takes many times its length in memory, is refused before anything decodes it.
func TestMuchMetadataIsRefused(t *testing.T) {
	metadata := make(map[string]string, membersMax)
	for i := range membersMax {
		metadata[fmt.Sprint(i)] = ""
	}
	in := &v1.GetRateLimitsReq{Requests: []*v1.RateLimitReq{{Name: "n", UniqueKey: "k", Metadata: metadata}}}
	packed, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkMessage(packed); err == nil || !strings.Contains(err.Error(), "metadata holds") {
		t.Errorf("protobuf: %v", err)
	}
	text, err := protojson.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := checkBody(text); err == nil || !strings.Contains(err.Error(), "members") {
		t.Errorf("JSON: %v", err)
	}
}
