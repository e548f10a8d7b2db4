package bounded

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/await"
)

const bytesMax = 16 << 10

func packed(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(make([]byte, n))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func framed(flags byte, message []byte) string {
	return string(binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(message)))) + string(message)
}

// server is a Handler on loopback, whose Next answers with as many bytes as it has read.
type server struct {
	*Handler
	*httptest.Server
}

func serve(t *testing.T, adjust func(*Handler, *http.Server)) server {
	t.Helper()
	h := &Handler{
		Memory: NewMemory(Calls, 1<<20),
		Slots:  NewSlots(Calls, 1),
		Route:  func(*http.Request) Route { return Route{Bytes: bytesMax} },
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = w.Write(body)
		}),
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.ConnContext = ConnContext
	if adjust != nil {
		adjust(h, s.Config)
	}
	s.Listener = Listen(s.Listener, new(Callers), 100, nil)
	s.Start()
	t.Cleanup(s.Close)
	return server{h, s}
}

func (s server) post(t *testing.T, body io.Reader, headers ...string) (status int, answer string) {
	t.Helper()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(read)
}

// Messages are checked for any spelling of their Content-Type, because decoders ignore its case too.
func TestMessagesOfAnySpellingAreLookedAt(t *testing.T) {
	var kinds, messages []string
	s := serve(t, func(h *Handler, _ *http.Server) {
		h.Route = func(*http.Request) Route {
			return Route{Bytes: bytesMax, Check: func(kind string, message []byte) error {
				kinds, messages = append(kinds, kind), append(messages, string(message))
				return nil
			}}
		}
	})
	for _, kind := range []string{"application/grpc", "Application/GRPC+proto", "APPLICATION/connect+JSON", "application/JSON; charset=utf-8"} {
		body := "message"
		if !strings.HasPrefix(kind, "application/JSON") {
			body = framed(0, []byte(body))
		}
		if status, answer := s.post(t, strings.NewReader(body), "Content-Type", kind); status != http.StatusOK || answer != body {
			t.Errorf("%s: %d %q", kind, status, answer)
		}
	}
	if want := []string{"application/grpc", "application/grpc+proto", "application/connect+json", "application/json; charset=utf-8"}; !slices.Equal(kinds, want) {
		t.Errorf("%q, want %q", kinds, want)
	}
	if want := slices.Repeat([]string{"message"}, 4); !slices.Equal(messages, want) {
		t.Errorf("%q, want %q", messages, want)
	}
}

// A body above a bound is rejected with that bound. A body within the bounds arrives decompressed and complete, with
// any framing.
func TestBodies(t *testing.T) {
	var refused []Bound
	s := serve(t, func(h *Handler, _ *http.Server) { h.Refused = func(b Bound) { refused = append(refused, b) } })
	chunked := func(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} }
	long := strings.Repeat("x", bytesMax)
	for _, step := range []struct {
		name    string
		body    io.Reader
		headers []string
		status  int
		want    string // the answer
		bound   Bound
	}{
		{"empty", strings.NewReader(""), nil, 200, "", ""},
		{"short", strings.NewReader("short"), nil, 200, "short", ""},
		{"the longest", strings.NewReader(long), nil, 200, long, ""},
		{"the longest, of unknown length", chunked(long), nil, 200, long, ""},
		{"too long", strings.NewReader(long + "x"), nil, 413, "body is longer than 16384 bytes\n", BoundBody},
		{"too long, of unknown length", chunked(long + "x"), nil, 413, "body is longer than 16384 bytes\n", BoundBody},
		{"packed", bytes.NewReader(packed(t, bytesMax)), []string{"Content-Encoding", "gzip"}, 200, string(make([]byte, bytesMax)), ""},
		{"packed, and too long", bytes.NewReader(packed(t, bytesMax+1)), []string{"Content-Encoding", "gzip"}, 413, "body unpacks to more than 16384 bytes\n", BoundUnpacked},
		{"not packed", strings.NewReader("short"), []string{"Content-Encoding", "gzip"}, 400, "body is not gzip, although its headers declare it: unexpected EOF\n", ""},
		{"packed another way", strings.NewReader("short"), []string{"Content-Encoding", "br"}, 200, "short", ""},
		{"a packed message", strings.NewReader(framed(1, packed(t, 10))), []string{"Content-Type", "application/grpc", "Grpc-Encoding", "gzip"}, 200, framed(0, make([]byte, 10)), ""},
		{"a packed message, too long", strings.NewReader(framed(1, packed(t, bytesMax+1))), []string{"Content-Type", "application/grpc-web+proto", "Grpc-Encoding", "gzip"}, 413, "body unpacks to more than 16384 bytes\n", BoundUnpacked},
		{"a message packed another way", strings.NewReader(framed(1, []byte("ab"))), []string{"Content-Type", "application/grpc", "Grpc-Encoding", "br"}, 200, framed(1, []byte("ab")), ""},
		{"no whole message", strings.NewReader(framed(1, packed(t, 10))[:9]), []string{"Content-Type", "application/grpc", "Grpc-Encoding", "gzip"}, 200, framed(1, packed(t, 10))[:9], ""},
		{"two messages", strings.NewReader(framed(0, nil) + framed(0, nil)), []string{"Content-Type", "application/grpc"}, 400, "body holds more than one message\n", BoundItems},
	} {
		refused = nil
		status, answer := s.post(t, step.body, step.headers...)
		if status != step.status || answer != step.want {
			t.Errorf("%s: %d %.80q, want %d %.80q", step.name, status, answer, step.status, step.want)
		}
		if len(refused) > 1 || step.bound == "" && len(refused) > 0 || step.bound != "" && (len(refused) == 0 || refused[0] != step.bound) {
			t.Errorf("%s: refused by %q, want %q", step.name, refused, step.bound)
		}
	}
	if used := s.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are held at the end", used)
	}
}

// A route checks each decompressed message before it is decoded.
func TestCheckSeesUnpackedMessages(t *testing.T) {
	var seen []string
	s := serve(t, func(h *Handler, _ *http.Server) {
		h.Route = func(*http.Request) Route {
			return Route{bytesMax, func(kind string, message []byte) error {
				seen = append(seen, kind+" "+string(message))
				return errors.New("as told")
			}}
		}
	})
	zero := string(make([]byte, 1))
	for _, step := range []struct {
		kind, body, want string
		headers          []string
	}{
		{"text/plain", "abc", "text/plain abc", nil},
		{"text/plain", string(packed(t, 1)), "text/plain " + zero, []string{"Content-Encoding", "gzip"}},
		{"application/grpc", framed(0, []byte("abc")), "application/grpc abc", nil},
		{"application/grpc", framed(1, packed(t, 1)), "application/grpc " + zero, []string{"Grpc-Encoding", "gzip"}},
	} {
		seen = nil
		status, answer := s.post(t, strings.NewReader(step.body), append(step.headers, "Content-Type", step.kind)...)
		if status != 400 || answer != "as told\n" || len(seen) != 1 || seen[0] != step.want {
			t.Errorf("%s: %d %s, seen %q, want %q", step.kind, status, answer, seen, step.want)
		}
	}
}

// Callers that send slowly, or do not read their answers, hold no slot.
func TestSlowCallersHoldNoSlot(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 8<<20)
	s := serve(t, func(h *Handler, _ *http.Server) {
		h.Memory = NewMemory(Calls, 256<<20)
		next := h.Next
		h.Next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/big" {
				_, _ = w.Write(big)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx",
		"GET /big HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		before := s.Memory.Used()
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, _ = io.WriteString(conn, request)
		await.True(t, "the call holds memory", func() bool { return s.Memory.Used() > before })
		await.True(t, "another call is answered", func() bool {
			status, answer := s.post(t, strings.NewReader("other"))
			return status == 200 && answer == "other"
		})
	}
	if err := s.Slots.TakeAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// Slow bodies that use up the memory make room for new calls, over HTTP/1.1 and HTTP/2.
func TestSlowBodiesMakeRoom(t *testing.T) {
	for name, enable := range map[string]func(*http.Protocols, bool){
		"HTTP/1.1": (*http.Protocols).SetHTTP1,
		"HTTP/2":   (*http.Protocols).SetUnencryptedHTTP2,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, func(h *Handler, c *http.Server) {
				h.Memory = NewMemory(Calls, 6*(CallBytes+bytesMax))
				c.Protocols = new(http.Protocols)
				c.Protocols.SetHTTP1(true)
				c.Protocols.SetUnencryptedHTTP2(true)
			})
			protocols := new(http.Protocols)
			enable(protocols, true)
			transport := &http.Transport{Protocols: protocols}
			defer transport.CloseIdleConnections()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			for range 20 {
				silent, keep := io.Pipe()
				defer keep.Close()
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, silent)
				r.ContentLength = bytesMax
				go func() {
					if response, err := (&http.Client{Transport: transport}).Do(r); err == nil {
						_ = response.Body.Close()
					}
				}()
			}
			await.True(t, "the caller's part is in use", func() bool { return s.Memory.Used() == 3*(CallBytes+bytesMax) })
			for range 5 {
				await.True(t, "a call among them is answered", func() bool {
					status, _ := s.post(t, strings.NewReader("x"))
					return status == 200
				})
			}
		})
	}
}

// A caller has three quarters of the slots at most.
func TestSlots(t *testing.T) {
	s, one, other := NewSlots(Calls, 4), new(Caller), new(Caller)
	for range 3 {
		if err := s.Take(one); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Take(one); boundOf(err) != BoundCaller {
		t.Errorf("a fourth by one caller: %v", err)
	}
	if err := s.Take(other); err != nil {
		t.Errorf("the fourth by another one: %v", err)
	}
	if err := s.Take(other); boundOf(err) != BoundSlots {
		t.Errorf("a fifth: %v", err)
	}
	s.Give(one)
	if err := s.Take(nil); err != nil {
		t.Errorf("a slot that was given back: %v", err)
	}
	if err := NewSlots(Calls, 1).Take(new(Caller)); err != nil {
		t.Errorf("the only one: %v", err)
	}
}

// A panic gives back everything that its call held.
func TestPanicGivesBack(t *testing.T) {
	s := serve(t, func(h *Handler, c *http.Server) {
		h.Next = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	})
	for range 3 {
		if response, err := s.Client().Post(s.URL, "", strings.NewReader("x")); err == nil {
			_ = response.Body.Close()
			t.Error("it is answered")
		}
	}
	await.True(t, "nothing is held", func() bool { return s.Memory.Used() == 0 })
	if err := s.Slots.TakeAll(t.Context()); err != nil {
		t.Error(err)
	}
}

// A refusal that there is no memory for has no body, so that its caller cannot leave it waiting.
func TestBareRefusal(t *testing.T) {
	s := serve(t, func(h *Handler, _ *http.Server) { h.Memory = NewMemory(Calls, CallBytes) })
	response, err := http.Post(s.URL, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || len(body) > 0 || response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != RetryAfterSeconds {
		t.Errorf("%d %v %q, %v", response.StatusCode, response.Header, body, err)
	}
	if n := s.Memory.Used(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}
