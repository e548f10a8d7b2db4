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

// attackBytesMax is what one address may add to the memory of an idle relay.
const attackBytesMax = 250 << 20

// Connections of a party that a peer's certificate lets in, as many as an address may have, keep little of a relay
// with floods of single frames; another address's stream is heard meanwhile. Plaintext stands for the certificate.
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

// hello is eu's, over a connection of its own.
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

// A certificate of the peer's own authority and name that has expired, is not valid yet, or is for servers alone,
// opens no connection.
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

// A row of an admitted peer is of the peer's own region, whatever shard it names and whatever its payload says.
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
