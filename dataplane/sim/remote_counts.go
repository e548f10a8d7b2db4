package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// components are the stored counts of all regions, as the simulator saw them arrive.
type components struct {
	mu    sync.Mutex
	cells map[window.Cell]*component
}

// component is what is stored of one cell.
type component struct {
	byRegion []int64 // -1 where there is no row
	shared   bool    // there is traffic on the key in several regions
}

// raise merges a row.
func (c *components) raise(region int, row store.Count, l *ledger, regions int) {
	stored := c.cells[row.Cell]
	if stored == nil {
		stored = &component{byRegion: slices.Repeat([]int64{-1}, regions), shared: l.shared(row.Cell.Key)}
		c.cells[row.Cell] = stored
	}
	stored.byRegion[region] = max(stored.byRegion[region], row.Count)
}

// forget drops cells that nobody reads any more.
func (c *components) forget(beforeMs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.cells, func(cell window.Cell, _ *component) bool { return cell.ExpiresAtMs() < beforeMs })
}

// remoteCounts is the count store as one node sees it.
type remoteCounts struct {
	store.CountStore
	link   *link
	world  *world
	region int
	node   int
	asked  atomic.Bool // for settings
}

// call is one statement's way there and back around what it does.
func (c *remoteCounts) call(ctx context.Context, op string, do func() error) error {
	v, err := c.link.embark(op)
	if err != nil {
		return err
	}
	if err := v.outward(ctx, op); err != nil {
		return err
	}
	if err := c.world.database.embark(ctx, op); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return v.homeward(ctx, op)
}

func (c *remoteCounts) Publish(ctx context.Context, region string, counts []store.Count) error {
	counts = slices.Clone(counts)
	return c.call(ctx, "publish", func() error {
		if c.world.curtain != nil {
			c.world.curtain.hold(c.region, counts)
		} else if err := c.CountStore.Publish(ctx, region, counts); err != nil {
			return err
		}
		w := c.world
		w.components.mu.Lock()
		defer w.components.mu.Unlock()
		for _, row := range counts {
			w.components.raise(c.region, row, w.ledger, len(w.regions))
			if most := w.ledger.ceiling(c.region, row.Cell); row.Count > most {
				w.violate(violationPublished, "%s published %d of %v, cell %d, and had accepted %d", region, row.Count, row.Cell.Key, row.Cell.Sequence, most)
			}
		}
		return nil
	})
}

// news is one imported cell, with the components it was summed from if anybody cares.
type news struct {
	store.Imported
	from []int64
}

func (c *remoteCounts) Import(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Imported)) (next store.Cursor, err error) {
	var found []news
	curtain := c.world.curtain
	err = c.call(ctx, "import", func() error {
		if curtain != nil && !curtain.isOpen(c.node) {
			next = after
			return nil
		}
		next, err = c.CountStore.Import(ctx, region, nowMs, after, func(in store.Imported) {
			found = append(found, c.news(in))
		})
		return err
	})
	if err != nil {
		return after, err
	}
	for _, n := range found {
		yield(n.Imported)
		if curtain != nil {
			curtain.handed(c.node, n.Imported)
		}
		if n.from != nil {
			c.world.ledger.told(c.node, c.region, n.Cell, n.from)
		}
	}
	return next, nil
}

func (c *remoteCounts) PublishDigest(ctx context.Context, region string, d store.Digest) error {
	op := "publish digest"
	counts, err := dataplane.DigestCounts(&d)
	if err != nil {
		c.world.violate(violationError, "digest of %s: %v", d.Node, err)
	}
	if len(counts) > 0 {
		op = "publish bulletin"
	}
	return c.call(ctx, op, func() error {
		if err := c.CountStore.PublishDigest(ctx, region, d); err != nil {
			return err
		}
		w := c.world
		w.meters.digestBytes.Add(int64(len(d.Filter)))
		for _, row := range counts {
			if most := w.ledger.ceiling(c.region, row.Cell); row.Count > most {
				w.violate(violationPublished, "%s told of %d of %v, cell %d, and had accepted %d", region, row.Count, row.Cell.Key, row.Cell.Sequence, most)
			}
		}
		return nil
	})
}

func (c *remoteCounts) Digests(ctx context.Context, region string, nowMs int64, after store.Cursor, yield func(store.Digest)) (next store.Cursor, err error) {
	var found []store.Digest
	err = c.call(ctx, "digests", func() error {
		if curtain := c.world.curtain; curtain != nil && !curtain.isOpen(c.node) {
			next = after
			return nil
		}
		next, err = c.CountStore.Digests(ctx, region, nowMs, after, func(d store.Digest) { found = append(found, d) })
		return err
	})
	if err != nil {
		return after, err
	}
	for _, d := range found {
		yield(d)
		c.world.meters.digestBytesRead.Add(int64(len(d.Filter)))
		c.told(d)
	}
	return next, nil
}

// told writes down what a digest has told this node of.
func (c *remoteCounts) told(d store.Digest) {
	counts, err := dataplane.DigestCounts(&d)
	if err != nil {
		c.world.violate(violationError, "digest of %s: %v", d.Node, err)
	}
	from := slices.IndexFunc(c.world.regions, func(r *region) bool { return r.name == d.Region })
	for _, row := range counts {
		components := make([]int64, len(c.world.regions))
		components[from] = row.Count
		c.world.ledger.told(c.node, c.region, row.Cell, components)
	}
}

func (c *remoteCounts) news(in store.Imported) news {
	if in.Foreign == 0 {
		return news{Imported: in}
	}
	all := &c.world.components
	all.mu.Lock()
	defer all.mu.Unlock()
	stored := all.cells[in.Cell]
	if stored == nil || !stored.shared { // nil: not of a node here
		return news{Imported: in}
	}
	return news{in, slices.Clone(stored.byRegion)}
}

// Settings are there a moment after a node has begun to ask for them: then its loops
// have begun with the default intervals, and go on with the tuned ones, in every run.
func (c *remoteCounts) Settings(ctx context.Context, region string) (found store.SettingsRows, err error) {
	if c.asked.CompareAndSwap(false, true) && c.link.open() {
		time.Sleep(time.Nanosecond)
		return c.CountStore.Settings(ctx, region)
	}
	err = c.call(ctx, "settings", func() error {
		found, err = c.CountStore.Settings(ctx, region)
		return err
	})
	return found, err
}

func (c *remoteCounts) Heartbeat(ctx context.Context, beat heartbeat.Beat) error {
	return c.call(ctx, "heartbeat", func() error { return c.CountStore.Heartbeat(ctx, beat) })
}

var errDatabase = errors.New("mysql: server has gone away")

// database is how the one MySQL behaves, whoever calls.
type database struct {
	mu     sync.Mutex
	delay  time.Duration // of every statement, besides the way
	failed float64       // share of statements that fail
	random *rand.Rand
}

func (d *database) embark(ctx context.Context, op string) error {
	delay, failed := d.draw()
	if failed {
		return fmt.Errorf("%s: %w", op, errDatabase)
	}
	if delay == 0 {
		return nil
	}
	return pause(ctx, delay, op)
}

func (d *database) draw() (delay time.Duration, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay, d.failed > 0 && d.random.Float64() < d.failed
}

func (d *database) set(delay time.Duration, failed float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay, d.failed = delay, failed
}
