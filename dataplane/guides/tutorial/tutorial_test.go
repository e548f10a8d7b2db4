package tutorial_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/manual"
	"github.com/weirhq/weir/shared/servers"
)

// A reader types the commands of the page in their order, and gets the output that the page shows: at first in memory,
// then with a Redis.
func TestTheTutorialRunsAsWritten(t *testing.T) {
	page, err := os.ReadFile("../tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := stepsOf(string(page))
	if len(steps) < 15 {
		t.Fatalf("found %d commands", len(steps))
	}
	built := build(t, steps)
	for {
		began := time.Now().Truncate(time.Hour)
		wrong := play(t, steps, built)
		if !time.Now().Truncate(time.Hour).Equal(began) {
			continue // the limits of the hour before no longer apply in full: once more, with another Redis
		}
		for _, line := range wrong {
			t.Error(line)
		}
		return
	}
}

// The code of a step is the code of the page: see TestPagesShowWhatTestsRun. Here each step has the function of the
// step before it.
func TestEachStepKeepsTheFunctionsOfTheStepBefore(t *testing.T) {
	kept := regexp.MustCompile(`(?ms)^// (\w+) [^\n]*\nfunc .*?^}$`)
	var before [][]byte
	for _, name := range []string{"limit", "redis", "metric", "stop"} {
		code, err := os.ReadFile(filepath.Join(name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, function := range before {
			if !bytes.Contains(code, function) {
				t.Errorf("%s/main.go has another version of\n%s", name, function)
			}
		}
		if before = kept.FindAll(code, -1); len(before) == 0 {
			t.Errorf("%s/main.go has no function with a comment", name)
		}
	}
}

// step is a command of the page, or Ctrl-C in the terminal of the program that began last.
type step struct {
	line    int
	command string // "^C" is Ctrl-C
	want    []string
}

func (s *step) is(program string) bool {
	return strings.HasPrefix(s.command, program+" ") || strings.Contains(s.command, " "+program+" ")
}

// stepsOf returns the commands in the blocks of a page without a language, each with the output below it.
func stepsOf(page string) (steps []step) {
	block := "" // the line that began it
	for i, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "```") {
			if block != "" {
				line = ""
			}
			block = line
			continue
		}
		command, begins := strings.CutPrefix(line, "$ ")
		switch {
		case block != "```":
		case begins || line == "^C":
			steps = append(steps, step{line: i + 1, command: command})
		default:
			last := &steps[len(steps)-1]
			last.want = append(last.want, line)
		}
	}
	for i := range steps { // without the empty lines between two commands
		for s := &steps[i]; len(s.want) > 0 && s.want[len(s.want)-1] == ""; {
			s.want = s.want[:len(s.want)-1]
		}
	}
	return steps
}

// build compiles the programs that the page runs.
func build(t *testing.T, steps []step) (paths map[string]string) {
	t.Helper()
	paths = map[string]string{}
	dir := t.TempDir()
	for i := range steps {
		if !steps[i].is("go run") {
			continue
		}
		pkg := regexp.MustCompile(`\./\S+`).FindString(steps[i].command)
		if paths[pkg] != "" {
			continue
		}
		paths[pkg] = filepath.Join(dir, filepath.Base(pkg))
		command := exec.Command("go", "build", "-o", paths[pkg], pkg)
		command.Dir = manual.Root(t)
		if text, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	return paths
}

// player runs the commands. Programs listen on free ports instead of the ports of the page.
type player struct {
	t     *testing.T
	built map[string]string
	redis *servers.Redis
	runs  map[string]*run   // by the address of the API that the page shows
	ports map[string]string // the address that the page shows, and the real address
	last  *run
	wrong []string
}

// play returns how the output differs from the page.
func play(t *testing.T, steps []step, built map[string]string) (wrong []string) {
	t.Helper()
	p := &player{t: t, built: built, redis: servers.RedisForTest(t), runs: map[string]*run{}, ports: map[string]string{}}
	defer func() {
		for _, r := range p.runs {
			r.kill()
		}
	}()
	for i := range steps {
		switch s := &steps[i]; {
		case s.is("go run"):
			p.start(s)
		case s.is("curl"):
			p.compare(s, p.curl(s.command))
		case s.is("go test"):
			p.compare(s, p.test(s.command))
		case s.command == "^C":
			p.compare(s, p.last.interrupt())
		default:
			t.Fatalf("line %d: the test cannot run %s", s.line, s.command)
		}
	}
	return p.wrong
}

// varies matches the parts that differ from run to run, such as times.
var varies = regexp.MustCompile(`\d+\.\d+s$|\(cached\)$|;t=\d+|^Retry-After: \d+$|^Date: .*$`)

func (p *player) compare(s *step, got []string) {
	masked := func(lines []string) string {
		var b strings.Builder
		for _, line := range lines {
			b.WriteString(varies.ReplaceAllString(line, "…") + "\n")
		}
		return b.String()
	}
	if masked(got) != masked(s.want) {
		p.wrong = append(p.wrong, fmt.Sprintf("line %d: %s prints\n%s\nand the page shows\n%s", s.line, s.command,
			strings.Join(got, "\n"), strings.Join(s.want, "\n")))
	}
}

// run is a program that runs.
type run struct {
	command *exec.Cmd
	lines   *bufio.Scanner
}

func (p *player) start(s *step) {
	p.t.Helper()
	api := "127.0.0.1:8080"
	if at := strings.Index(s.command, "-listen "); at >= 0 {
		api = s.command[at+len("-listen "):]
	}
	if r := p.runs[api]; r != nil { // the reader has stopped it with Ctrl-C
		r.kill()
	}
	args := []string{"-listen=127.0.0.1:0"}
	if len(s.want) > 1 {
		args = append(args, "-operators=127.0.0.1:0")
	}
	command := exec.Command(p.built[regexp.MustCompile(`\./\S+`).FindString(s.command)], args...)
	command.Env = os.Environ()
	if strings.Contains(s.command, "WEIR_REDIS_URL=redis://127.0.0.1:6379 ") {
		command.Env = append(command.Env, "WEIR_REDIS_URL=redis://"+p.redis.Addr())
	}
	command.Stderr = p.t.Output()
	output, err := command.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.last = &run{command, bufio.NewScanner(output)}
	p.runs[api] = p.last
	shown := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	var got []string
	for _, want := range s.want {
		if !p.last.lines.Scan() {
			p.t.Fatalf("line %d: %s has ended", s.line, s.command)
		}
		line := p.last.lines.Text()
		p.ports[shown.FindString(want)] = shown.FindString(line)
		got = append(got, shown.ReplaceAllLiteralString(line, shown.FindString(want)))
	}
	p.compare(s, got)
}

func (r *run) kill() {
	_ = r.command.Process.Kill()
	_ = r.command.Wait()
}

// interrupt presses Ctrl-C, and returns the output that follows. The page shows ^C above it.
func (r *run) interrupt() (printed []string) {
	if err := r.command.Process.Signal(os.Interrupt); err != nil {
		return []string{err.Error()}
	}
	for r.lines.Scan() {
		printed = append(printed, r.lines.Text())
	}
	if err := r.command.Wait(); err != nil {
		printed = append(printed, err.Error())
	}
	return printed
}

func (p *player) test(command string) []string {
	test := exec.Command("go", strings.Fields(command)[1:]...)
	test.Dir = manual.Root(p.t)
	text, err := test.CombinedOutput()
	if err != nil {
		text = append(text, err.Error()...)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

var (
	urls    = regexp.MustCompile(`http://([\d.]+:\d+)(/[^\s'\[]*)(?:\[(\d)-(\d)\])?`)
	headers = regexp.MustCompile(`-H '([^:]+): ([^']+)'`)
	greps   = regexp.MustCompile(`\| grep '([^']+)'$`)
)

// curl sends the requests of a curl command, and returns its output.
func (p *player) curl(command string) (printed []string) {
	p.t.Helper()
	url := urls.FindStringSubmatch(command)
	if url == nil {
		p.t.Fatalf("the test cannot read %s", command)
	}
	first, last := 0, 0
	if url[3] != "" {
		first, _ = strconv.Atoi(url[3])
		last, _ = strconv.Atoi(url[4])
	}
	var text string
	for n := first; n <= last; n++ {
		path := url[2]
		if url[3] != "" {
			path += strconv.Itoa(n)
		}
		text += p.get(p.ports[url[1]], path, headers.FindStringSubmatch(command), strings.Contains(command, " -si "))
	}
	grep := greps.FindStringSubmatch(command)
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if grep == nil || regexp.MustCompile(grep[1]).MatchString(line) {
			printed = append(printed, line)
		}
	}
	return printed
}

// get sends a request, and returns the body of the response, after the head if with is set, byte by byte.
func (p *player) get(address, path string, header []string, with bool) string {
	p.t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n", path, address)
	if header != nil {
		fmt.Fprintf(conn, "%s: %s\r\n", header[1], header[2])
	}
	fmt.Fprint(conn, "\r\n")
	var raw bytes.Buffer
	response, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	if !with {
		return string(body)
	}
	head, _, _ := strings.Cut(raw.String(), "\r\n\r\n")
	return head + "\r\n\r\n" + string(body)
}
