package servers

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/await"
)

// "chooses again if another process was faster to take a port"
func TestTakenPortIsChosenAgain(t *testing.T) {
	t.Parallel()
	program, err := FindRedis(t.Context(), RedisKindOf(t))
	must(t, err)
	taken := listen(t)
	free, err := freePort()
	must(t, err)

	draws := []int{taken, taken, free}
	p, err := newProcess("redis", Options{})
	must(t, err)
	r := &Redis{Process: p, port: &port{draw: func() (int, error) {
		next := draws[0]
		draws = draws[1:]
		return next, nil
	}}}
	p.ports = []*port{r.port}
	p.command, p.probe = r.command(program, nil), r.probe
	must(t, p.start(t.Context()))
	defer func() { must(t, p.Stop()) }()
	if r.port.number != free {
		t.Errorf("runs on port %d, want %d", r.port.number, free)
	}
}

// If the caller names a port, no other port is used, even if a server of the same kind answers there.
func TestTakenFixedPortIsAnError(t *testing.T) {
	t.Parallel()
	EachSQL(t, testTakenFixedPortIsAnError)
}

func testTakenFixedPortIsAnError(t *testing.T) {
	t.Parallel()
	db, redis, mute := SharedSQL(t).port.number, RedisForTest(t).port.number, listen(t)
	restate := RestateForTest(t)
	all := RestateOptions{IngressPort: restate.ingress.number, AdminPort: restate.admin.number, FabricPort: restate.fabric.number}
	for what, start := range map[string]func() error{
		"SQL on SQL's":          func() error { _, err := StartSQL(t.Context(), EngineOf(t), Options{Port: db}); return err },
		"redis on redis'":       func() error { _, err := StartRedis(t.Context(), RedisKindOf(t), Options{Port: redis}); return err },
		"redis on a mute one":   func() error { _, err := StartRedis(t.Context(), RedisKindOf(t), Options{Port: mute}); return err },
		"restate on a mute one": func() error { _, err := StartRestate(t.Context(), RestateOptions{FabricPort: mute}); return err },
		"restate on restate's":  func() error { _, err := StartRestate(t.Context(), all); return err },
	} {
		if err := start(); !errors.Is(err, errPortTaken) {
			t.Errorf("%s port: got %v, want %v", what, err, errPortTaken)
		}
	}
}

// A server of the same kind can take a port between the check and the server's bind. It must not be mistaken for our
// server, whose log has the reason why it exits.
func TestPortTakenAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for name, start := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := start(t.Context(), 0)
			must(t, err)
			defer func() { must(t, p.Stop()) }()
			must(t, p.Kill())
			command := p.command
			p.command = func() *exec.Cmd { // called after the look
				rival, err := start(t.Context(), p.ports[len(p.ports)-1].number)
				must(t, err)
				t.Cleanup(func() { must(t, rival.Stop()) })
				return command()
			}
			if err := p.Restart(t.Context()); !errors.Is(err, errPortTaken) || !errors.Is(err, errExited) {
				t.Errorf("got %v, want %v because %v", err, errPortTaken, errExited)
			}
		})
	}
}

// A probe that reaches another server on our port fails. A child that fails to bind can need longer to exit than a
// probe.
func TestProbeKnowsItsOwn(t *testing.T) {
	t.Parallel()
	EachSQL(t, testProbeKnowsItsOwn)
}

func testProbeKnowsItsOwn(t *testing.T) {
	t.Parallel()
	db, redis, other := *SharedSQL(t), *RedisForTest(t), RedisForTest(t)
	data := t.TempDir()
	must(t, db.probe(t.Context(), filepath.Join(db.Dir(), "data")))
	if err := db.probe(t.Context(), data); err == nil || !strings.Contains(err.Error(), "not "+data) {
		t.Errorf("with other data: %v", err)
	}
	must(t, redis.probe(t.Context()))
	redis.port = other.port
	if err := redis.probe(t.Context()); err == nil || !strings.Contains(err.Error(), "process_id") {
		t.Errorf("another redis: %v", err)
	}
}

// A server that exits is not waited for, and the error carries the end of its log.
func TestStartFailsEarlyWithLog(t *testing.T) {
	t.Parallel()
	EachSQL(t, testStartFailsEarlyWithLog)
}

func testStartFailsEarlyWithLog(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	m, err := StartSQL(t.Context(), EngineOf(t), Options{Args: []string{"--no-such-flag"}})
	if err == nil {
		t.Fatal("started", m.Stop())
	}
	if took := time.Since(begin); took > startTimeout/2 {
		t.Errorf("took %v to notice that the server had exited", took)
	}
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "--no-such-flag'") {
		t.Errorf("error %v does not say what the server said", err)
	}
}

// A process that has taken our port at the last moment may accept connections and never answer.
func TestStuckProbeEndsWithTheChild(t *testing.T) {
	t.Parallel()
	p, err := newProcess("stuck", Options{})
	must(t, err)
	defer func() { must(t, p.Stop()) }()
	p.command = func() *exec.Cmd { return exec.Command(os.Args[0], "-no-such-flag") }
	var ended error
	p.probe = func(ctx context.Context) error {
		<-ctx.Done()
		ended = ctx.Err()
		return ended
	}
	if err := p.start(t.Context()); !errors.Is(err, errExited) {
		t.Errorf("got %v, want %v", err, errExited)
	}
	if ended != context.Canceled {
		t.Errorf("the last probe ended with %v, want its cancellation, not its timeout", ended)
	}
}

// A start that is given up leaves neither process nor directory.
func TestStartGivenUp(t *testing.T) {
	t.Parallel()
	ctx, giveUp := context.WithCancel(t.Context())
	p, err := newProcess("silent", Options{})
	must(t, err)
	program, err := FindRedis(t.Context(), RedisKindOf(t))
	must(t, err)
	r := &Redis{Process: p, port: newPort(0)}
	p.ports = []*port{r.port}
	p.command = r.command(program, nil)
	p.probe = func(context.Context) error {
		giveUp()
		return errors.New("silence")
	}
	err = p.start(ctx)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "silence") {
		t.Errorf("got %v, want the cancellation and the last probe's error", err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("the child still runs")
	}
	must(t, p.Stop())
	mustBeGone(t, p.Dir())
}

func TestExitedTellsOfDeath(t *testing.T) {
	t.Parallel()
	r := RedisForTest(t)
	exited := r.Exited()
	process, err := os.FindProcess(r.PID())
	must(t, err)
	must(t, process.Kill()) // not through us
	<-exited
	must(t, r.Restart(t.Context()))
	if r.Exited() == exited {
		t.Error("after a restart Exited is still that of the dead child")
	}
}

// The directory of a parent that died without a Stop is removed by the next start.
func TestAbandonedDirectoryIsRemoved(t *testing.T) {
	t.Parallel()
	abandoned, err := newTemporary("test")
	must(t, err)
	kept, err := newTemporary("test")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(abandoned.path, "data"), []byte("150 MB"), 0o600))
	must(t, abandoned.lock.Close()) // as the kernel does for a dead process

	// Eventually, because other tests sweep too, and only the first sweep removes it.
	await.NoError(t, "the abandoned directory is removed", func() error {
		removeAbandoned()
		return gone(abandoned.path)
	})
	if _, err := os.Stat(kept.path); err != nil {
		t.Errorf("a directory in use was removed: %v", err)
	}
	must(t, kept.release())
	mustBeGone(t, kept.path)
}

func TestNotInstalled(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	for variable, find := range map[string]func() (string, error){
		"MARIADB_SERVER_BIN": sqlFinder(t, MariaDB),
		"MYSQL_SERVER_BIN":   sqlFinder(t, MySQL),
		"REDIS_SERVER_BIN":   redisFinder(t, SystemRedis),
		"VALKEY_SERVER_BIN":  redisFinder(t, Valkey),
		"REDIS8_SERVER_BIN":  redisFinder(t, Redis8),
		"RESTATE_SERVER_BIN": FindRestate,
	} {
		t.Setenv(variable, filepath.Join(empty, "absent"))
		path, err := find()
		if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "make setup") || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s names nothing: got %q, %v", variable, path, err)
		}
		present := filepath.Join(empty, "present")
		says := map[string]string{"MYSQL_SERVER_BIN": saysMySQL, "VALKEY_SERVER_BIN": saysValkey, "REDIS8_SERVER_BIN": saysRedis8}
		fakeServer(t, present, cmp.Or(says[variable], saysMariaDB))
		t.Setenv(variable, present)
		if path, err := find(); err != nil || path != present {
			t.Errorf("%s=%s: got %q, %v", variable, present, path, err)
		}
	}
}

// listen returns a port on which somebody listens, though not a server.
func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}
