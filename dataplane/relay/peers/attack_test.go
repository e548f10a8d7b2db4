package peers_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/shared/attack"
	"github.com/weirhq/weir/shared/await"
	relayv1 "github.com/weirhq/weir/shared/gen/proto/weir/relay/v1"
)

// attackBytesMax is the most memory that an address may add to an idle relay.
const attackBytesMax = 250 << 20

// A caller with a peer's certificate opens as many connections as an address may have, and floods them with single
// frames. The relay's memory stays bounded, and a stream from another address is served meanwhile. Plaintext takes the
// place of the certificate.
func TestFloodsOfFrames(t *testing.T) {
	for name, flood := range attack.Floods(relayv1.PeerService_Publish_FullMethodName, "application/grpc") {
		t.Run(name, func(t *testing.T) {
			us, err := peers.New(peers.Config{Region: "us", Listen: "127.0.0.1:0", Plaintext: true,
				Peers: []peers.Peer{{Region: "eu", Addresses: []string{"127.0.0.1:1"}}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := us.Start(t.Context(), &fakeRelay{}); err != nil {
				t.Fatal(err)
			}
			defer us.Stop()
			during := attack.Watch()
			conns := attack.Send(t, us.Addr().String(), 64, flood)
			await.NoError(t, "another address is heard", func() error { return hello(t, us.Addr().String()) })
			attack.Close(conns)
			during.Small(t, attackBytesMax)
		})
	}
}

// hello opens a connection of its own and sends eu's hello.
func hello(t *testing.T, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stream, err := relayv1.NewPeerServiceClient(conn).Publish(t.Context())
	if err != nil {
		return err
	}
	s := stranger{stream: stream}
	return s.hello("eu", "us")
}

// A certificate of the peer's own authority and name opens no connection if it has expired, is not valid yet, or is for
// servers only.
func TestCertificatesOfAnotherTime(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		for what, change := range map[string]func(*x509.Certificate){
			"expired":          func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) },
			"not valid yet":    func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) },
			"for servers only": func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] },
			"as it should be":  nil,
		} {
			own := p.authority.IssueLike(t, change, nameOf("eu"))
			shown, err := tls.X509KeyPair(own.Certificate, own.Key)
			if err != nil {
				t.Fatal(err)
			}
			s, err := p.call(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: nameOf("us"),
				RootCAs: p.authority.Pool(), NextProtos: []string{"h2"}, Certificates: []tls.Certificate{shown}}))
			if err == nil {
				err = s.hello("eu", "us")
			}
			want := codes.Unavailable
			if change == nil {
				want = codes.OK
			}
			if status.Code(err) != want {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			s.close()
		}
	})
}

// A row of an admitted peer counts as a row of the peer's own region, whatever its shard and payload are.
func TestRowsAreOfTheirSender(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		s := p.admitted()
		shards := []int32{-1 << 31, -1, 0, 3, 65536, 1<<31 - 1}
		for _, shard := range shards {
			if err := s.send([]byte(fmt.Sprint("us ap eu ", shard)), shard); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Second)
		p.relay.set(func(e *fakeRelay) {
			for _, row := range e.rows {
				if row.Region != "eu" {
					t.Errorf("a row of %q", row.Region)
				}
			}
			if len(e.rows) != len(shards) {
				t.Errorf("%d rows are heard, want %d", len(e.rows), len(shards))
			}
		})
	})
}
