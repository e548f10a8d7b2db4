package servers

import "testing"

// RestateForTest starts a server for a test and stops it when the test ends.
func RestateForTest(t testing.TB) *Restate {
	t.Helper()
	r, err := StartRestate(t.Context(), RestateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r.Process)
	return r
}

// RestateClusterForTest starts three servers for a test and stops them when the test ends.
func RestateClusterForTest(t testing.TB) *RestateCluster {
	t.Helper()
	c, err := StartRestateCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range c.Nodes {
		cleanUp(t, node.Process)
	}
	return c
}

// ProxyForTest starts a proxy for a test and closes it when the test ends.
func ProxyForTest(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func cleanUp(t testing.TB, p *Process) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", p.name, p.logTail())
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}
