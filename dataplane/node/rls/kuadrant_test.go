package rls

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
	"github.com/weirhq/weir/shared/reload"
)

const ordinary = `
domain: shop
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: calls, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: soft, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: q1, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
`

// region is two nodes of a region that serve the same rules.
func region(t testing.TB, rules string) (nodes [2]Kuadrant, stop func()) {
	t.Helper()
	origin := memstore.NewOrigin(memstore.OriginOptions{Shards: 2})
	var limiters []*dataplane.Limiter
	for i, id := range []string{"a", "b"} {
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: id, Origin: origin, RegionNodes: 2})
		if err == nil {
			err = l.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		source := new(Source)
		source.now.Store(parsed(t, rules))
		nodes[i] = Kuadrant{&Service{Limiter: l, Rules: source, Workspace: "envoy"}}
		limiters = append(limiters, l)
	}
	return nodes, func() {
		for _, l := range limiters {
			_ = l.Stop(context.Background())
		}
	}
}

func describe(words ...string) (d []*descriptorOfEnvoy) {
	for i := 0; i < len(words); i += 2 {
		d = append(d, descriptorOf(words[i:i+2]))
	}
	return d
}

func (k Kuadrant) left(t testing.TB, words ...string) string {
	t.Helper()
	r, err := k.CheckRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: describe(words...)})
	if err != nil {
		t.Fatal(err)
	}
	return verdicts(r)
}

func (k Kuadrant) report(t testing.TB, hits uint32, words ...string) string {
	t.Helper()
	r, err := k.Report(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: hits, Descriptors: describe(words...)})
	if err != nil {
		t.Fatal(err)
	}
	return verdicts(r)
}

func (k Kuadrant) reserve(t testing.TB, amount uint64, ttl time.Duration, words ...string) string {
	t.Helper()
	m := &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe(words...), Amount: amount}
	if ttl > 0 {
		m.Ttl = durationpb.New(ttl)
	}
	r, err := k.Reserve(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if (r.Code == rlsv3.RateLimitResponse_OK) != (r.ReservationId != "") {
		t.Errorf("reserve: %v", r)
	}
	return r.ReservationId
}

func (k Kuadrant) commit(t testing.TB, id string, amount uint64, released bool, words ...string) {
	t.Helper()
	r, err := k.Commit(t.Context(), &kuadrantv1.CommitRequest{Domain: "shop", Descriptors: describe(words...),
		ReservationId: id, ActualAmount: amount})
	if err != nil || r.ReservationReleased != released {
		t.Errorf("commit %d of %q: %v, %v, want %v", amount, id, r, err, released)
	}
}

func wantLeft(t testing.TB, k Kuadrant, want string, words ...string) {
	t.Helper()
	if got := k.left(t, words...); got != want {
		t.Errorf("left of %v: %s, want %s", words, got, want)
	}
}

// CheckRateLimit counts nothing, and Report counts everything.
func TestKuadrantChecksAndReports(t *testing.T) {
	k := Kuadrant{newService(t, ordinary)}
	for i, step := range []struct {
		report uint32 // 0: a check
		words  []string
		want   string
	}{
		{0, []string{"tokens", "a"}, "ok: ok 100"},
		{0, []string{"tokens", "a"}, "ok: ok 100"},
		{90, []string{"tokens", "a"}, "ok: ok 10"},
		{10, []string{"tokens", "a"}, "ok: ok 0"},
		{0, []string{"tokens", "a"}, "over: over 0"},
		{500, []string{"tokens", "a"}, "ok: over 0"},
		{0, []string{"tokens", "a", "calls", "a"}, "over: over 0 ok 3"},
		{2, []string{"tokens", "a", "calls", "a"}, "ok: over 0 ok 1"}, // each counts
		{9, []string{"soft", "a"}, "ok: ok 0"},
		{0, []string{"soft", "a", "calls", "a"}, "ok: ok 0 ok 1"},
		{1, []string{"q1", "a"}, "ok: ok 0"},
		{0, []string{"q1", "a", "q2", "a"}, "ok: over 0 ok 2"}, // a quota has something left
		{2, []string{"q2", "a"}, "ok: ok 0"},
		{0, []string{"q1", "a", "q2", "a"}, "over: over 0 over 0"},
		{0, []string{"free", "a", "none", "a"}, "ok: ok ok"},
		{5, []string{"free", "a", "none", "a"}, "ok: ok ok"},
	} {
		got := ""
		if step.report == 0 {
			got = k.left(t, step.words...)
		} else {
			got = k.report(t, step.report, step.words...)
		}
		if got != step.want {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
	back := &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*descriptorOfEnvoy{
		descriptorOf([]string{"tokens", "a"}, addend(592), negative)}}
	if r, err := k.Report(t.Context(), back); err != nil || verdicts(r) != "ok: ok 90" {
		t.Errorf("602 less 592: %v, %v", r, err)
	}
	peek := &rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: 91, Descriptors: describe("tokens", "a")}
	if r, err := k.CheckRateLimit(t.Context(), peek); err != nil || verdicts(r) != "over: over 90" {
		t.Errorf("91 of 90: %v, %v", r, err)
	}
}

// A reservation of one node is committed once, at another node. The cost counts as it was spent, even above the limit.
func TestKuadrantReservesAndCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stop := region(t, ordinary)
		defer stop()
		a, b := nodes[0], nodes[1]
		words := []string{"tokens", "a", "calls", "a"}
		id := a.reserve(t, 3, 0, words...)
		if id == "" || a.reserve(t, 1, 0, words...) != "" || b.reserve(t, 1, 0, "calls", "a") != "" {
			t.Error("4 of 3 calls")
		}
		b.commit(t, id, 2, true, words...)
		a.commit(t, id, 2, false, words...) // again: counts nothing
		time.Sleep(time.Second)
		one := b.reserve(t, 1, 0, words...)
		if one == "" || one == id {
			t.Errorf("the rest: %q", one)
		}
		a.commit(t, one, 150, true, words...)
		time.Sleep(time.Second)
		for _, k := range nodes {
			wantLeft(t, k, "over: over 0 over 0", words...)
		}
		b.commit(t, "", 1, false, words...) // no reservation: as a report
		if id := a.reserve(t, 0, 0, "tokens", "z"); id == "" {
			t.Error("nothing is not reserved")
		} else {
			b.commit(t, id, 40, true, "tokens", "z")
		}
		time.Sleep(time.Second)
		wantLeft(t, a, "ok: ok 60", "tokens", "z")
	})
}

// A reservation that ends without a commit counts nothing. A later commit counts its cost, as a commit with an unknown
// ID does.
func TestKuadrantCommitsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stop := region(t, ordinary)
		defer stop()
		a, b := nodes[0], nodes[1]
		id := a.reserve(t, 100, 5*time.Second, "tokens", "a")
		if b.reserve(t, 1, 0, "tokens", "a") != "" {
			t.Error("101 of 100")
		}
		time.Sleep(10 * time.Second)
		next := b.reserve(t, 100, 0, "tokens", "a")
		if next == "" {
			t.Error("what has ended counts")
		}
		b.commit(t, next, 0, true, "tokens", "a")
		b.commit(t, id, 30, false, "tokens", "a")
		time.Sleep(time.Second)
		if id := a.reserve(t, 71, 0, "tokens", "a"); id != "" {
			t.Error("101 of 100, after a late commit")
		}
		a.commit(t, "unknown", 20, false, "tokens", "a")
		time.Sleep(time.Second)
		if b.reserve(t, 51, 0, "tokens", "a") != "" || b.reserve(t, 50, 0, "tokens", "a") == "" {
			t.Error("50 are left, after 20 of an unknown id")
		}
	})
}

// A commit whose descriptors have other limits than at the reservation releases the reservation, and counts by the
// current limits. A repeated commit counts once.
func TestKuadrantCommitsOtherDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stop := region(t, ordinary)
		defer stop()
		a, b := nodes[0], nodes[1]
		for _, words := range [][]string{{"tokens", "other"}, {"tokens", "a", "calls", "other"}, {"none", "a"}} {
			id := a.reserve(t, 100, 0, "tokens", "a")
			b.commit(t, id, 1, true, words...)
			b.commit(t, id, 1, false, words...)
		}
		time.Sleep(time.Second)
		if id := b.reserve(t, 99, 0, "tokens", "a"); id == "" {
			t.Error("more than the one that was committed counts")
		}
		if b.reserve(t, 100, 0, "tokens", "other") != "" || b.reserve(t, 99, 0, "tokens", "other") == "" {
			t.Error("not 1 of others")
		}
		id := a.reserve(t, 2, 0, "calls", "x")
		rules, err := Parse([]reload.File{{Path: "r", Content: []byte(strings.ReplaceAll(ordinary, "year", "month"))}})
		if err != nil {
			t.Fatal(err)
		}
		b.Service.Rules.now.Store(&rules)
		b.commit(t, id, 3, true, "calls", "x")
		wantLeft(t, b, "over: over 0", "calls", "x")
		if a.reserve(t, 3, 0, "calls", "x") == "" {
			t.Error("what was held by the rules of before still is")
		}
	})
}

// Many callers reserve at any node and commit late, twice or never. Their reservations never exceed a limit, and each
// committed cost is counted.
func TestKuadrantAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, stop := region(t, ordinary)
		defer stop()
		var mu sync.Mutex
		held, spent := uint64(0), uint64(0)
		var callers sync.WaitGroup
		for i := range 30 {
			callers.Go(func() {
				id := nodes[i%2].reserve(t, 10, time.Minute, "tokens", "a")
				if id == "" {
					return
				}
				mu.Lock()
				held += 10
				mu.Unlock()
				if i%3 == 0 {
					nodes[(i+1)%2].commit(t, id, 4, true, "tokens", "a")
					nodes[i%2].commit(t, id, 4, false, "tokens", "a")
					mu.Lock()
					spent += 4
					mu.Unlock()
				}
			})
		}
		callers.Wait()
		if held < 100 {
			t.Errorf("%d of 100 were granted", held)
		}
		time.Sleep(2 * time.Minute)
		if nodes[0].reserve(t, 101-spent, 0, "tokens", "a") != "" || nodes[1].reserve(t, 100-spent, 0, "tokens", "a") == "" {
			t.Errorf("not %d are counted", spent)
		}
	})
}

// away is a limiter whose origin does not answer.
type away struct {
	Limiter
	err error
}

func (a away) Reserve(context.Context, dataplane.ReserveRequest) dataplane.Reserved {
	return dataplane.Reserved{Err: a.err}
}

func (a away) Settle(context.Context, string, ...int64) (dataplane.Settlement, error) {
	return dataplane.Settlement{}, a.err
}

func (a away) Cancel(context.Context, string) (dataplane.Settlement, error) {
	return dataplane.Settlement{}, a.err
}

// reserving records the reservations that a limiter gets.
type reserving struct {
	Limiter
	asked func(dataplane.ReserveRequest)
}

func (r reserving) Reserve(_ context.Context, request dataplane.ReserveRequest) dataplane.Reserved {
	r.asked(request)
	return dataplane.Reserved{}
}

// Kuadrant's reservations have ids that are drawn: no call is a retry, so a refusal looks for no reservation of its id.
func TestAReservationOfKuadrantIsNoRetry(t *testing.T) {
	s := newService(t, ordinary)
	var got dataplane.ReserveRequest
	k := Kuadrant{&Service{Limiter: reserving{s.Limiter, func(r dataplane.ReserveRequest) { got = r }}, Rules: s.Rules,
		Workspace: s.Workspace}}
	if _, err := k.Reserve(t.Context(), &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("tokens", "a"),
		Amount: 1}); err != nil || got.ID == "" || !got.Drawn {
		t.Errorf("%v: %+v", err, got)
	}
}

// A call that cannot be decided returns an error that shows whether the caller should retry. Nothing is counted then.
func TestKuadrantWithoutAnOrigin(t *testing.T) {
	for err, want := range map[error]codes.Code{
		errors.New("dial 10.0.0.1"):  codes.Unavailable,
		dataplane.ErrReservations:    codes.ResourceExhausted,
		dataplane.ErrBusy:            codes.ResourceExhausted,
		dataplane.ErrReservationUsed: codes.AlreadyExists,
		dataplane.ErrInvalid:         codes.InvalidArgument,
		context.Canceled:             codes.Canceled,
		context.DeadlineExceeded:     codes.DeadlineExceeded,
	} {
		s := newService(t, ordinary)
		k := Kuadrant{&Service{Limiter: away{s.Limiter, err}, Rules: s.Rules, Workspace: s.Workspace}}
		_, reserving := k.Reserve(t.Context(), &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("tokens", "a"),
			Amount: 1})
		_, committing := k.Commit(t.Context(), &kuadrantv1.CommitRequest{Domain: "shop", Descriptors: describe("tokens", "a"),
			ReservationId: "r", ActualAmount: 1})
		for _, got := range []error{reserving, committing} {
			if status.Code(got) != want || strings.Contains(got.Error(), "10.0.0.1") {
				t.Errorf("%v: %v, want %v", err, got, want)
			}
			if details := status.Convert(got).Details(); want == codes.ResourceExhausted {
				info, ok := details[0].(*errdetails.RetryInfo)
				if !ok || info.GetRetryDelay().AsDuration() != time.Second {
					t.Errorf("%v: details %v, want RetryInfo of 1s", err, details)
				}
			}
		}
		wantLeft(t, k, "ok: ok 100", "tokens", "a")
	}
}

// A caller can choose the amount, for example max_tokens. An amount above every limit is denied, or counted as the
// largest cost. It is not an error.
func TestKuadrantTakesAnyAmount(t *testing.T) {
	k := Kuadrant{newService(t, ordinary)}
	for _, amount := range []uint64{1 << 53, 1<<64 - 1} {
		r, err := k.Reserve(t.Context(), &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("tokens", "huge"), Amount: amount})
		if err != nil || r.Code != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Errorf("reserve %d: %v, %v", amount, r, err)
		}
	}
	if _, err := k.Commit(t.Context(), &kuadrantv1.CommitRequest{Domain: "shop", Descriptors: describe("tokens", "huge"), ActualAmount: 1<<64 - 1}); err != nil {
		t.Error(err)
	}
	r, err := k.CheckRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: describe("tokens", "huge")})
	if err != nil || r.OverallCode != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("after a huge amount: %v, %v", r, err)
	}
}

// Each field that is out of its bounds is named, with them.
func TestKuadrantNamesWhatIsWrong(t *testing.T) {
	k := Kuadrant{newService(t, ordinary)}
	reserve := func(change func(*kuadrantv1.ReserveRequest)) error {
		m := &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("tokens", "a"), Amount: 1}
		change(m)
		_, err := k.Reserve(t.Context(), m)
		return err
	}
	commit := func(change func(*kuadrantv1.CommitRequest)) error {
		m := &kuadrantv1.CommitRequest{Domain: "shop", Descriptors: describe("tokens", "a"), ReservationId: "r"}
		change(m)
		_, err := k.Commit(t.Context(), m)
		return err
	}
	var many []string
	for range 33 {
		many = append(many, "tokens", "a")
	}
	for want, err := range map[string]error{
		"domain is 0 bytes long (1 to 255)":           reserve(func(m *kuadrantv1.ReserveRequest) { m.Domain = "" }),
		"descriptors has 0 items (1 to 32)":           reserve(func(m *kuadrantv1.ReserveRequest) { m.Descriptors = nil }),
		"descriptors has 33 items (1 to 32)":          reserve(func(m *kuadrantv1.ReserveRequest) { m.Descriptors = describe(many...) }),
		"ttl is 500ms (1s to 24h0m0s":                 reserve(func(m *kuadrantv1.ReserveRequest) { m.Ttl = durationpb.New(500 * time.Millisecond) }),
		"ttl is -1s":                                  reserve(func(m *kuadrantv1.ReserveRequest) { m.Ttl = durationpb.New(-time.Second) }),
		"ttl is 24h0m1s":                              reserve(func(m *kuadrantv1.ReserveRequest) { m.Ttl = durationpb.New(24*time.Hour + time.Second) }),
		"descriptors have their own hits (amount":     reserve(func(m *kuadrantv1.ReserveRequest) { m.Descriptors[0].IsNegativeHits = true }),
		"descriptors have their own hits (actual_":    commit(func(m *kuadrantv1.CommitRequest) { addend(7)(m.Descriptors[0]) }),
		"reservation_id is 125 bytes long (0 to 124)": commit(func(m *kuadrantv1.CommitRequest) { m.ReservationId = strings.Repeat("x", 125) }),
		"domain is 256 bytes long":                    commit(func(m *kuadrantv1.CommitRequest) { m.Domain = strings.Repeat("x", 256) }),
	} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) || len(status.Convert(err).Details()) != 1 {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if r, err := k.Reserve(t.Context(), &kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("none", "a")}); err != nil ||
		r.Code != rlsv3.RateLimitResponse_OK || r.ReservationId != "" {
		t.Errorf("what nothing limits: %v, %v", r, err)
	}
}

// A call with any bytes is rejected as invalid or gets a response, and each reservation can be committed.
func FuzzKuadrant(f *testing.F) {
	add := func(m proto.Message) { f.Add(wireOf(f, m)) }
	add(&kuadrantv1.ReserveRequest{Domain: "shop", Descriptors: describe("tokens", "a", "soft", "a"), Amount: 7,
		Ttl: durationpb.New(time.Minute)})
	add(&kuadrantv1.CommitRequest{Domain: "shop", Descriptors: describe("calls", "a"), ReservationId: "r", ActualAmount: 7})
	add(&rlsv3.RateLimitRequest{Domain: "shop", HitsAddend: 7, Descriptors: []*descriptorOfEnvoy{
		descriptorOf([]string{"q1", "x"}, addend(3), negative)}})
	k := Kuadrant{newService(f, ordinary)}
	f.Fuzz(func(t *testing.T, b []byte) {
		valid := func(what string, err error) bool {
			if c := status.Code(err); c != codes.OK && c != codes.InvalidArgument && c != codes.ResourceExhausted {
				t.Errorf("%s: %v", what, err)
			}
			return err == nil
		}
		call := new(rlsv3.RateLimitRequest)
		if proto.Unmarshal(b, call) == nil {
			r, err := k.CheckRateLimit(t.Context(), call)
			if valid("check", err) && len(r.Statuses) != len(call.Descriptors) {
				t.Error("a status is missing")
			}
			if r, err := k.Report(t.Context(), call); valid("report", err) && r.OverallCode != rlsv3.RateLimitResponse_OK {
				t.Error("a report is denied")
			}
		}
		commit := new(kuadrantv1.CommitRequest)
		if proto.Unmarshal(b, commit) == nil {
			_, err := k.Commit(t.Context(), commit)
			valid("commit", err)
		}
		reserve := new(kuadrantv1.ReserveRequest)
		if proto.Unmarshal(b, reserve) != nil {
			return
		}
		r, err := k.Reserve(t.Context(), reserve)
		if !valid("reserve", err) || r.ReservationId == "" {
			return
		}
		done, err := k.Commit(t.Context(), &kuadrantv1.CommitRequest{Domain: reserve.Domain, Descriptors: reserve.Descriptors,
			ReservationId: r.ReservationId})
		if err != nil || !done.ReservationReleased {
			t.Errorf("commit of %v: %v, %v", reserve, done, err)
		}
	})
}
