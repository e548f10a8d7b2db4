package e2e

import (
	"bufio"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/deploy/local/stack"
	"github.com/weirhq/weir/shared/await"
)

// printedConfigurations passes the output of --print-config of programs with secrets to look.
func printedConfigurations(t *testing.T, s *stack.Stack, o stack.Options, look func(where, text string)) {
	t.Helper()
	for program, args := range map[string][]string{"weir-node": o.NodeArgs, "weir-control": o.ControlArgs} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(args, "--print-config")...)
		cmd.Env = []string{"WEIR_REGION=eu", "WEIR_MYSQL_DSN=" + s.ControlDSN()}
		if program == "weir-node" {
			cmd.Env = []string{"WEIR_REGION=eu", "WEIR_MYSQL_DSN=" + s.NodeDSN(), "WEIR_REDIS_URL=" + s.RedisURL("eu")}
		}
		printed, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(printed), strings.ReplaceAll(program, "-", "_")+":") {
			t.Errorf("%s --print-config: %v\n%s", program, err, printed)
		}
		look(program+" --print-config", string(printed))
	}
}

// journals passes the journal of every invocation to look. It reads them from Restate itself, which returns payloads in
// hexadecimal.
func journals(t *testing.T, s *stack.Stack, look func(where, text string)) {
	t.Helper()
	query := func(table string) string {
		header := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
		status, _, text := ask(t, stranger, http.MethodPost, s.Restate.AdminURL()+"/query", `{"query":"SELECT * FROM `+table+`"}`, header)
		if status != http.StatusOK || len(text) < 100 {
			t.Fatalf("%s: %d %s", table, status, text)
		}
		return text
	}
	await.True(t, "what was told with a token is in a journal", func() bool {
		return strings.Contains(query("sys_journal"), hex.EncodeToString([]byte(reasonTold)))
	})
	for _, table := range []string{"sys_journal", "sys_invocation", "state"} {
		look("Restate's "+table, query(table))
	}
}

// tables passes all rows of MySQL to look, with heartbeats and the audit log.
func tables(t *testing.T, s *stack.Stack, look func(where, text string)) {
	t.Helper()
	db := database(t, s)
	var names []string
	rows, err := db.QueryContext(t.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", stack.Database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil || len(names) < 8 {
		t.Fatalf("tables %v, %v", names, err)
	}
	for _, name := range names {
		look("the table "+name, rowsOf(t, db, name))
	}
}

func rowsOf(t *testing.T, db *sql.DB, table string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT * FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for rows.Next() {
		values, targets := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
		for _, value := range values {
			text.Write(value)
			text.WriteByte('\n')
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// logFiles passes the logs of all processes to look.
func logFiles(t *testing.T, s *stack.Stack, look func(where, text string)) {
	t.Helper()
	logs := 0
	for _, dir := range []string{s.Nodes[0].Dir(), s.Control.Dir(), s.Restate.Dir(), s.Redis["eu"].Dir(), s.SQL.Dir()} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || filepath.Ext(path) != ".log" || filepath.Dir(path) != dir {
				return err
			}
			text, err := os.ReadFile(path)
			if len(text) > 0 {
				logs++
			}
			look(path, string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if logs < 3 {
		t.Errorf("found only %d logs", logs)
	}
}

// listening returns the addresses on which a process listens, as the kernel has them.
func listening(t *testing.T, pid int) (found []netip.AddrPort) {
	t.Helper()
	sockets := map[string]bool{}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("process %d: %v", pid, err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil {
			sockets[target] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			const listens = "0A"
			fields := strings.Fields(lines.Text()) // slot, local address, remote address, state, …, inode
			if len(fields) > 9 && fields[3] == listens && sockets["socket:["+fields[9]+"]"] {
				found = append(found, kernelAddress(t, fields[1]))
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// kernelAddress reads 0100007F:1F90: words of four bytes, the last byte first, and the port.
func kernelAddress(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	bytes, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for word := 0; word+4 <= len(bytes); word += 4 {
		b := bytes[word : word+4]
		b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
	}
	address, ok := netip.AddrFromSlice(bytes)
	var number uint16
	if _, err := fmt.Sscanf(port, "%x", &number); err != nil || !ok {
		t.Fatalf("no address: %s", text)
	}
	return netip.AddrPortFrom(address.Unmap(), number)
}
