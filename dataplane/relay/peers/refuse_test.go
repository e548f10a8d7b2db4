package peers_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/dataplane/store"
	relayv1 "github.com/weirhq/weir/shared/gen/proto/weir/relay/v1"
	"github.com/weirhq/weir/shared/testcert"
)

// stranger is a caller of us's relay.
type stranger struct {
	*pair
	conn   *grpc.ClientConn
	stream grpc.BidiStreamingClient[relayv1.PublishRequest, relayv1.PublishResponse]
}

// call opens a stream with the given credentials.
func (p *pair) call(secure credentials.TransportCredentials) (*stranger, error) {
	p.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addressOf("us", 0), grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(p.network.Dial), grpc.WithAuthority(nameOf("us")), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(8<<20)))
	if err != nil {
		p.Fatal(err)
	}
	s := &stranger{pair: p, conn: conn}
	p.Cleanup(s.close)
	ctx, cancel := context.WithTimeout(p.Context(), 24*time.Hour)
	p.Cleanup(cancel)
	s.stream, err = relayv1.NewPeerServiceClient(conn).Publish(ctx)
	return s, err
}

func (s *stranger) close() { _ = s.conn.Close() }

// hello sends a hello, and returns the relay's error.
func (s *stranger) hello(from, to string) error {
	_ = s.stream.Send(&relayv1.PublishRequest{Message: &relayv1.PublishRequest_Hello{Hello: &relayv1.Hello{FromRegion: from, ToRegion: to}}})
	_, err := s.stream.Recv()
	return err
}

func (s *stranger) send(payload []byte, shard int32) error {
	return s.stream.Send(&relayv1.PublishRequest{Message: &relayv1.PublishRequest_Row{Row: &relayv1.Row{Shard: shard, Sequence: 1, Payload: payload}}})
}

// holding returns the credentials of a caller that trusts us and has a certificate for names by a, or no certificate
// without names.
func (p *pair) holding(a *testcert.Authority, names ...string) credentials.TransportCredentials {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: nameOf("us"), RootCAs: p.authority.Pool(), NextProtos: []string{"h2"}}
	if len(names) > 0 {
		own := a.Issue(p, names...)
		pair, err := tls.X509KeyPair(own.Certificate, own.Key)
		if err != nil {
			p.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config)
}

// The relay accepts streams only from relays of a peer region, which their certificates must prove.
func TestStrangersAreRefused(t *testing.T) {
	inPair(t, func(f *fleet, _, us *peers.Config) {
		us.Peers = append(us.Peers, peers.Peer{Region: "ap", Name: nameOf("ap"), Addresses: []string{addressOf("ap", 0)}})
	}, func(t *testing.T, p *pair) {
		other := testcert.New(t)
		for _, c := range []struct {
			what     string
			secure   credentials.TransportCredentials
			from, to string
			want     codes.Code
			why      string // a label of refused streams; "" if no connection is made
		}{
			{"no TLS", insecure.NewCredentials(), "eu", "us", codes.Unavailable, ""},
			{"no certificate", p.holding(nil), "eu", "us", codes.Unavailable, ""},
			{"another authority", p.holding(other, nameOf("eu")), "eu", "us", codes.Unavailable, ""},
			{"nobody's name", p.holding(p.authority, "mx.relays.test"), "eu", "us", codes.Unavailable, ""},
			{"another peer's name", p.holding(p.authority, nameOf("ap")), "eu", "us", codes.PermissionDenied, "name"},
			{"no peer", p.holding(p.authority, nameOf("eu")), "mx", "us", codes.PermissionDenied, "region"},
			{"the own region", p.holding(p.authority, nameOf("eu")), "us", "us", codes.PermissionDenied, "region"},
			{"to another region", p.holding(p.authority, nameOf("eu")), "eu", "ap", codes.InvalidArgument, "hello"},
		} {
			s, err := p.call(c.secure)
			if err == nil {
				err = s.hello(c.from, c.to)
			}
			if status.Code(err) != c.want {
				t.Errorf("%s: %v, want %v", c.what, err, c.want)
			}
			if c.why != "" && !strings.Contains(metricsOf(t, p.us), `refused_total{reason="`+c.why+`"} `) {
				t.Errorf("%s: not counted", c.what)
			}
			s.close()
		}
		wantMetrics(t, p.us, `weir_relay_peer_streams_refused_total{reason="name"} 1`, `weir_relay_peer_streams_refused_total{reason="region"} 2`,
			`weir_relay_peer_streams_refused_total{reason="hello"} 1`)
		s, err := p.call(p.holding(p.authority, nameOf("eu")))
		if err == nil {
			err = s.hello("eu", "us")
		}
		if err != nil {
			t.Errorf("a relay of eu: %v", err)
		}
		s.close()
	})
}

// The messages of an admitted peer are bounded. Messages that cannot be applied are counted, and affect nothing else.
func TestGarbageOfAPeer(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		s := p.admitted()
		p.relay.set(func(e *fakeRelay) { e.err = store.ErrRefused })
		for range 3 {
			if err := s.send([]byte("garbage"), -7); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		p.relay.set(func(e *fakeRelay) { e.err = nil })
		if err := s.send([]byte("good"), 3); err != nil {
			t.Fatal(err)
		}
		_ = s.stream.Send(&relayv1.PublishRequest{}) // neither hello nor row
		<-time.After(time.Second)
		wantMetrics(t, p.us, `weir_relay_peer_rows_total{outcome="refused",peer="eu"} 4`, `weir_relay_peer_rows_total{outcome="applied",peer="eu"} 1`)
		for _, row := range p.relay.rows {
			if row.Region != "eu" {
				t.Errorf("a row of %q is heard from eu", row.Region)
			}
		}
		_ = s.send(make([]byte, 2*store.FeedBytesMax), 3)
		if _, err := s.stream.Recv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a message of twice the bound: %v", err)
		}
	})
}

// Rows of a region are applied in turn, however many streams it opens, so a region can take at most one processor of a
// node.
func TestRowsOfARegionTakeOneProcessor(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		hold := make(chan struct{})
		p.relay.set(func(e *fakeRelay) { e.hold = hold })
		const streams = 4
		for range streams {
			if err := p.admitted().send([]byte("row"), 3); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		close(hold)
		<-time.After(time.Second)
		if p.relay.insideMost != 1 || len(p.relay.received()) != streams {
			t.Errorf("%d rows at once, %d in all, want 1 and %d", p.relay.insideMost, len(p.relay.received()), streams)
		}
	})
}

// admitted returns a stream of eu's relay, which the test plays.
func (p *pair) admitted() *stranger {
	p.Helper()
	s, err := p.call(p.holding(p.authority, nameOf("eu")))
	if err == nil {
		err = s.hello("eu", "us")
	}
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// A region has at most streamsMax streams, and a stream without a hello is ended.
func TestStreamsAreBounded(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) { // the first stream is eu's own
		var open []*stranger
		for range peers.StreamsMax - 1 {
			open = append(open, p.admitted())
		}
		s, err := p.call(p.holding(p.authority, nameOf("eu")))
		if err == nil {
			err = s.hello("eu", "us")
		}
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("one more stream: %v", err)
		}
		open[0].close()
		<-time.After(time.Second)
		if s, err = p.call(p.holding(p.authority, nameOf("eu"))); err == nil {
			err = s.hello("eu", "us")
		}
		if err != nil {
			t.Errorf("after one has ended: %v", err)
		}
		silent, err := p.call(p.holding(p.authority, nameOf("eu")))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := silent.stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a stream without hello: %v", err)
		}
		if took := time.Since(began); took > peers.HelloTimeout+time.Second {
			t.Errorf("it stays for %v", took)
		}
	})
}

// A relay sends no rows to a server that cannot prove the peer's name.
func TestWrongServersAreLeft(t *testing.T) {
	for what, change := range map[string]func(f *fleet, eu, us *peers.Config){
		"another name":      func(f *fleet, _, us *peers.Config) { us.TLS = issued(f, f.authority, nameOf("ap")) },
		"another authority": func(f *fleet, _, us *peers.Config) { us.TLS = issued(f, testcert.New(f), nameOf("us")) },
		"another region":    func(f *fleet, _, us *peers.Config) { us.Region = "ap" },
	} {
		t.Run(what, func(t *testing.T) {
			inPair(t, change, func(t *testing.T, p *pair) {
				p.eu.Publish(row(1, 10))
				<-time.After(10 * time.Second)
				if n := connected(t, p.eu, "us"); n != 0 || len(p.relay.received()) != 0 {
					t.Errorf("%d streams, %d rows are heard", n, len(p.relay.received()))
				}
				wantMetrics(t, p.eu, `weir_relay_peer_rows_total{outcome="dropped",peer="us"} 1`)
			})
		})
	}
}

// Certificates and authorities are read again. Once the age of a stream has passed, all streams are between relays that
// the new files allow.
func TestCertificatesAreReadAgain(t *testing.T) {
	var euFiles, usFiles files
	old := (*testcert.Authority)(nil)
	inPair(t, func(f *fleet, eu, us *peers.Config) {
		old = f.authority
		euFiles, usFiles = newFiles(f), newFiles(f)
		euFiles.write(f, old, []string{nameOf("eu")}, old)
		usFiles.write(f, old, []string{nameOf("us")}, old)
		eu.TLS, us.TLS = euFiles.open(f), usFiles.open(f)
	}, func(t *testing.T, p *pair) {
		if connected(t, p.eu, "us") != 1 {
			t.Fatal("not connected")
		}
		next := testcert.New(t)
		for _, step := range []struct {
			what      string
			change    func()
			connected int
		}{
			{"both trust both", func() {
				euFiles.write(t, old, []string{nameOf("eu")}, old, next)
				usFiles.write(t, old, []string{nameOf("us")}, old, next)
			}, 1},
			{"both have new certificates", func() {
				euFiles.write(t, next, []string{nameOf("eu")}, old, next)
				usFiles.write(t, next, []string{nameOf("us")}, old, next)
			}, 1},
			{"us trusts the new authority alone", func() { usFiles.write(t, next, []string{nameOf("us")}, next) }, 1},
			{"eu has an old certificate again", func() { euFiles.write(t, old, []string{nameOf("eu")}, old, next) }, 0},
		} {
			step.change()
			for _, of := range []*peers.Peers{p.eu, p.us} {
				if changed, err := peers.TLSOf(of).Check(); err != nil {
					t.Fatalf("%s: %v, %v", step.what, changed, err)
				}
			}
			<-time.After(peers.StreamAge*3/2 + time.Minute)
			if n := connected(t, p.eu, "us"); n != step.connected {
				t.Errorf("%s: %d streams, want %d", step.what, n, step.connected)
			}
		}
	})
}

// Both ends limit how long a stream can outlive the certificate that allowed it: the sender opens it again in time, and
// otherwise the server closes the connection.
func TestStreamsAreMadeAnew(t *testing.T) {
	var usFiles files
	inPair(t, func(f *fleet, _, us *peers.Config) {
		usFiles = newFiles(f)
		usFiles.write(f, f.authority, []string{nameOf("us")}, f.authority)
		us.TLS = usFiles.open(f)
	}, func(t *testing.T, p *pair) {
		stays := p.admitted()
		usFiles.write(t, p.authority, []string{nameOf("us")}, testcert.New(t))
		if changed, err := peers.TLSOf(p.us).Check(); !changed || err != nil {
			t.Fatalf("changed: %v, %v", changed, err)
		}
		<-time.After(peers.StreamAge*3/2 + 10*time.Second)
		if n := connected(t, p.eu, "us"); n != 0 {
			t.Errorf("%d streams of the sender are left", n)
		}
		began := time.Now()
		if _, err := stays.stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream that its sender does not end: %v", err)
		}
		if took := time.Since(began); took > peers.ConnectionAgeMax/2 {
			t.Errorf("it stays for %v more", took)
		}
	})
}

// An invalid file is an error with its name, and the last valid contents stay in use.
func TestFilesAtFault(t *testing.T) {
	a, f := testcert.New(t), newFiles(t)
	f.write(t, a, []string{nameOf("eu")}, a)
	opened := f.open(t)
	for what, spoil := range map[string]func() []byte{
		"relay.key":             func() []byte { return a.Issue(t, "x").Key },
		"authorities.pem":       func() []byte { return []byte("none") },
		"client authentication": func() []byte { return nil },
	} {
		f.write(t, a, []string{nameOf("eu")}, a)
		_, _ = opened.Check()
		if content := spoil(); content != nil {
			f.replace(t, what, content)
		} else {
			f.writeServerOnly(t, a)
		}
		if _, err := opened.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := peers.OpenTLS(f[0], f[1], f[2]); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s, opened: %v", what, err)
		}
	}
	if _, err := peers.OpenTLS(f[0]+"x", f[1], f[2]); err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("a file that is not there: %v", err)
	}
}
