package bounded

import (
	"io"
	"net"
	"testing"
)

func listen(t *testing.T, most int, closed func()) (net.Listener, func(from string) (client net.Conn, server *Conn)) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(inner, new(Callers), most, closed)
	t.Cleanup(func() { _ = l.Close() })
	return l, func(from string) (net.Conn, *Conn) {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		client, err := dialer.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
		return client, ConnAt(server.RemoteAddr())
	}
}

// A new connection is always accepted. The address with the most connections loses the connection that has been idle
// longest, whatever the new connection's address is.
func TestANewConnectionIsLetIn(t *testing.T) {
	closed := 0
	l, dial := listen(t, 4, func() { closed++ })
	_, alone := dial("127.0.0.1")
	client, heard := dial("127.0.0.2")
	silent, _ := dial("127.0.0.2")
	_, last := dial("127.0.0.2")
	_, _ = client.Write([]byte("x"))
	if _, err := io.ReadFull(heard, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	dial("127.0.0.3")
	if closed != 1 {
		t.Errorf("%d connections were closed, want 1", closed)
	}
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent one of the many is not closed")
	}
	for name, conn := range map[string]*Conn{"of another address": alone, "that was heard": heard, "that came last": last} {
		if _, open := l.(*listener).conns[conn.address][conn]; !open {
			t.Errorf("the connection %s is closed", name)
		}
	}
}

// An address has at most a quarter of the connections, however many are free.
func TestAnAddressHasItsPartOfTheConnections(t *testing.T) {
	const most = 1000
	closed := 0
	l, dial := listen(t, most, func() { closed++ })
	_, first := dial("127.0.0.1")
	_, other := dial("127.0.0.2")
	for range most/connectionsPart - 1 {
		dial("127.0.0.1")
	}
	if closed != 0 {
		t.Fatalf("%d connections were closed below the part of an address", closed)
	}
	dial("127.0.0.1")
	_, open := l.(*listener).conns[first.address][first]
	_, others := l.(*listener).conns[other.address][other]
	if closed != 1 || open || !others {
		t.Errorf("%d closed, the first one open: %v, another address's: %v", closed, open, others)
	}
}

// Connections of an address belong to the same caller, on all listeners. After the last connection the caller is among
// the callers without a connection.
func TestCallersByAddress(t *testing.T) {
	l, dial := listen(t, 10, nil)
	callers := l.(*listener).callers
	_, a := dial("127.0.0.1")
	_, b := dial("127.0.0.1")
	_, c := dial("127.0.0.2")
	if a.Caller() != b.Caller() || a.Caller() == c.Caller() || a.Caller() == nil {
		t.Error("callers are told apart by their address")
	}
	for _, conn := range []*Conn{a, b, c, c} {
		_ = conn.Close()
	}
	if n, away := len(callers.byAddress), callers.away.Len(); n != 2 || away != 2 {
		t.Errorf("%d callers are left, %d of them without a connection", n, away)
	}
	if n := l.(*listener).open; n != 0 {
		t.Errorf("%d connections are left", n)
	}
}

// The holder of an IPv6 address has all of its /64.
func TestAddressesOfOneCaller(t *testing.T) {
	at := func(s string) net.Addr { a, _ := net.ResolveTCPAddr("tcp", s); return a }
	if addressOf(at("[2001:db8::1]:1")) != addressOf(at("[2001:db8::ffff]:2")) || addressOf(at("[2001:db8::1]:1")) == addressOf(at("[2001:db8:0:1::1]:1")) {
		t.Error("IPv6 addresses are told apart by their first 64 bits")
	}
	if addressOf(at("10.0.0.1:1")) == addressOf(at("10.0.0.2:1")) || addressOf(at("10.0.0.1:1")) != addressOf(at("[::ffff:10.0.0.1]:1")) {
		t.Error("IPv4 addresses are told apart by all their bits")
	}
}
