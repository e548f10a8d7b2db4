package mysqlcounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// packetBytesMin is what a server's max_allowed_packet must allow: PublishRowsMax rows
// of the longest names, each byte escaped into two, are about 800 kB, and the largest
// row of news 512 KiB.
const packetBytesMin = 1 << 20

// checkSession asks once what the database does with what it is sent, as a pool that
// Open did not open may differ. It does so before the first write: a cut name cannot be
// told from a real one afterwards.
func (c *Counts) checkSession(ctx context.Context) error {
	if c.checked.Load() {
		return nil
	}
	var mode string
	var autocommit bool
	var packetBytes int64
	err := c.db.QueryRowContext(ctx, "SELECT @@SESSION.sql_mode, @@SESSION.autocommit, @@max_allowed_packet").Scan(&mode,
		&autocommit, &packetBytes)
	switch {
	case err != nil:
		return fmt.Errorf("ask for the session's settings: %w", err)
	case !strings.Contains(mode, "STRICT_ALL_TABLES") && !strings.Contains(mode, "STRICT_TRANS_TABLES"):
		return fmt.Errorf("sql_mode is %q, which truncates values that do not fit instead of refusing them: open the "+
			"database with mysqlcounts.Open", mode)
	case !autocommit:
		return errors.New("autocommit is off, and this package never commits: open the database with mysqlcounts.Open")
	case packetBytes < packetBytesMin:
		return fmt.Errorf("max_allowed_packet is %d, want at least %d: raise it on the server", packetBytes, packetBytesMin)
	}
	c.checked.Store(true)
	return nil
}
