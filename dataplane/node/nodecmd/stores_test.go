package nodecmd

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// "A replica of the global MySQL, from which counts of other regions are read": it has a
// pool of its own, whose figures go by a name of their own, and is closed with the rest.
func TestAReplicaIsOpened(t *testing.T) {
	const dsn = "weir@tcp(127.0.0.1:1)/weir" // nobody is asked yet
	for replica, want := range map[string]int{"": 1, dsn: 2} {
		s, err := openStores(Config{MySQLDSN: dsn, MySQLReplicaDSN: replica}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		for _, c := range s.collectors {
			if err := registry.Register(c); err != nil {
				t.Error(err)
			}
		}
		if len(s.closers) != want {
			t.Errorf("replica %q: %d pools, want %d", replica, len(s.closers), want)
		}
		s.close()
	}
}
