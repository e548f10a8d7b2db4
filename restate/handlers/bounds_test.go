package handlers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
)

// roomy returns generous limits that a test narrows.
func roomy() limits {
	l := usual
	l.arrival, l.attempt = time.Minute, time.Minute
	return l
}

// bound returns next within l.
func bound(next http.Handler, l limits, refused func(bounded.Bound)) http.Handler {
	return newBounds(l, refused).handler(next)
}

// serveBound serves next within l, as Endpoint serves the handlers.
func serveBound(t *testing.T, next http.HandlerFunc, l limits) (address string) {
	t.Helper()
	s := newServer(bound(next, l, func(bounded.Bound) {}), slog.New(slog.DiscardHandler))
	listener := listen(t, "")
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// overBoth returns clients of both protocols of the port.
func overBoth(t *testing.T) map[string]*http.Client {
	t.Helper()
	clients := map[string]*http.Client{}
	for name, two := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(!two)
		transport.Protocols.SetUnencryptedHTTP2(two)
		t.Cleanup(transport.CloseIdleConnections)
		clients[name] = &http.Client{Transport: transport, Timeout: time.Minute}
	}
	return clients
}

// slowly posts a body that begins and does not continue until the test ends.
func slowly(t *testing.T, c *http.Client, url string) {
	t.Helper()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = more.Close()
		<-ended
	})
	go func() { _, _ = more.Write([]byte("x")) }()
	go func() {
		defer close(ended)
		if res, err := c.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
}

func TestInvocationsAreBounded(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	l := roomy()
	l.invocations, l.journalBytes = 1, 10
	url := "http://" + serveBound(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			w.WriteHeader(http.StatusOK)
			entered <- struct{}{}
			<-leave
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
	}, l)
	post := func(path string, body io.Reader, want int, says string) {
		t.Helper()
		res, err := http.Post(url+path, "application/json", body)
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
	post("/", strings.NewReader(""), http.StatusServiceUnavailable, "at most 1 running")
	close(leave)
	<-ended
	await.NoError(t, "its place is free again", func() error {
		res, err := http.Post(url, "application/json", http.NoBody)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return errors.New(res.Status)
		}
		return nil
	})
}

// "Slow arrivals do not use up the places of running requests": a further request cuts off the oldest arrival.
func TestSlowJournalsKeepNoOtherOut(t *testing.T) {
	t.Parallel()
	for name, c := range overBoth(t) {
		t.Run(name, func(t *testing.T) {
			l := roomy()
			l.arriving, l.invocations = 2, 1
			begun, cut := make(chan struct{}, 3), make(chan error, 3)
			url := "http://" + serveBound(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					begun <- struct{}{}
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					cut <- err
				}
				w.WriteHeader(http.StatusOK)
			}, l)
			for range 2 {
				slowly(t, c, url+"/slow")
				<-begun
			}
			res, err := c.Post(url, "", strings.NewReader("whole"))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if err := <-cut; res.StatusCode != http.StatusOK || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s; the oldest: %v", res.Status, err)
			}
		})
	}
}

// A journal that does not arrive in time frees its place.
func TestJournalsArriveInTime(t *testing.T) {
	t.Parallel()
	for name, c := range overBoth(t) {
		t.Run(name, func(t *testing.T) {
			l := roomy()
			l.arrival = 50 * time.Millisecond
			late := make(chan error, 1)
			url := "http://" + serveBound(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				late <- err
			}, l)
			slowly(t, c, url)
			if err := <-late; err == nil {
				t.Error("it reads to an end that never came")
			}
		})
	}
}

// A caller that is rejected, or answered before its body has arrived, cannot keep a connection by holding the body
// back.
func TestUnreadBodiesKeepNoConnection(t *testing.T) {
	t.Parallel()
	l := roomy()
	l.arrival, l.journalBytes = 50*time.Millisecond, 100
	address := serveBound(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unsigned" {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}, l)
	for _, head := range []string{"/unsigned", "/discover", "/invoke/a/b"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\nx", head)
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection stays", head)
		}
		_ = conn.Close()
	}
}

// "Then the input ends": not with an error, which would count as a failed attempt.
func TestAttemptsEnd(t *testing.T) {
	t.Parallel()
	for name, c := range overBoth(t) {
		t.Run(name, func(t *testing.T) {
			l := roomy()
			l.attempt = 50 * time.Millisecond
			ended := make(chan error, 1)
			url := "http://" + serveBound(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).EnableFullDuplex()
				w.WriteHeader(http.StatusOK)
				_, err := io.Copy(io.Discard, r.Body)
				ended <- err
			}, l)
			slowly(t, c, url)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// The size of all journals together is bounded, and shrinks again.
func TestJournalsAreBoundedTogether(t *testing.T) {
	t.Parallel()
	l := roomy()
	l.allBytes = 10
	read, leave := make(chan struct{}), make(chan struct{})
	url := "http://" + serveBound(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
		if r.URL.Path == "/wait" {
			read <- struct{}{}
			<-leave
		}
	}, l)
	post := func(path string) (int, string) {
		res, err := http.Post(url+path, "", strings.NewReader("012345"))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer func() { _ = res.Body.Close() }()
		text, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(text)
	}
	first := make(chan int, 1)
	go func() {
		status, _ := post("/wait")
		first <- status
	}()
	<-read
	if status, text := post("/"); status != http.StatusTeapot || !strings.Contains(text, "longer than 10 bytes") {
		t.Errorf("%d %q", status, text)
	}
	close(leave)
	if status := <-first; status != http.StatusOK {
		t.Errorf("the first: %d", status)
	}
	await.NoError(t, "the bytes are back", func() error {
		if status, text := post("/"); status != http.StatusOK {
			return fmt.Errorf("%d %q", status, text)
		}
		return nil
	})
}

// An address has a quarter of the connections. For a further connection the connection that was silent longest is
// closed.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	address := serveEndpoint(t, Options{})
	var first net.Conn
	for range usual.connections/4 + 1 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if first == nil {
			first = conn
		}
		_, _ = fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
	_ = first.SetReadDeadline(time.Now().Add(idleTimeout / 2))
	if _, err := io.Copy(io.Discard, first); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the first connection stays")
	}
}

// The server never sends more invocations at once than weir-control accepts, so weir-control refuses none of its own
// server's. The limit of the server is for each partition.
func TestTheServerSendsFewerInvocationsThanAreAccepted(t *testing.T) {
	for _, name := range []string{"restate.toml", "restate.cluster.toml"} {
		text, err := os.ReadFile(filepath.Join("..", "server", name))
		if err != nil {
			t.Fatal(err)
		}
		set := func(key string) (n int) {
			for line := range strings.Lines(string(text)) {
				if value, found := strings.CutPrefix(strings.TrimSpace(line), key+" = "); found {
					if n, err = strconv.Atoi(value); err != nil {
						t.Fatal(err)
					}
				}
			}
			return n
		}
		sent := set("concurrent-invocations-limit") * set("default-num-partitions")
		if sent == 0 || sent >= usual.invocations {
			t.Errorf("%s: the server sends up to %d invocations at once, and %d are accepted", name, sent, usual.invocations)
		}
	}
}
