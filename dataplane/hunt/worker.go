package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// workerDir is the environment variable that makes a process a worker: the directory of its machine.
const workerDir = "WEIR_HUNT_WORKER"

// order is the input of a worker, a line each, and answer is its output.
type order struct {
	Seed    uint64
	Without string
}

type answer struct {
	Result hunt.Result
	Died   string // why there is no result
}

// worker is another process of this program, which plays one history after the other.
type worker struct {
	process *exec.Cmd
	orders  io.Writer
	answers *json.Decoder
}

func startWorker(dir string) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{process: exec.Command(program)}
	w.process.Env, w.process.Stderr = append(os.Environ(), workerDir+"="+dir), os.Stderr
	orders, err := w.process.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := w.process.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, orders.Close())
	}
	w.orders, w.answers = orders, json.NewDecoder(answers)
	if err := w.process.Start(); err != nil { // it closes the pipes
		return nil, err
	}
	return w, nil
}

// play makes the worker play a history. It returns when ctx is done at the latest; then the worker cannot be used any
// more.
func (w *worker) play(ctx context.Context, o order) (a answer, err error) {
	defer context.AfterFunc(ctx, func() { _ = w.process.Process.Kill() })()
	if err := json.NewEncoder(w.orders).Encode(o); err != nil {
		return a, err
	}
	if err := w.answers.Decode(&a); err != nil {
		return a, fmt.Errorf("the worker ended: %w", err)
	}
	return a, ctx.Err()
}

// end kills the process, and waits for its end.
func (w *worker) end() {
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
}

// work is the loop of a worker: it plays each order until there are no more orders.
func work(ctx context.Context, dir string, orders io.Reader, answers io.Writer) error {
	p, err := newPlayer(ctx, dir)
	if err != nil {
		return err
	}
	read, write := json.NewDecoder(orders), json.NewEncoder(answers)
	for {
		var o order
		if err := read.Decode(&o); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var a answer
		if a.Result, err = p.play(ctx, o); err != nil {
			a.Died = err.Error()
		}
		if err := write.Encode(a); err != nil {
			return err
		}
	}
}

// beWorker works and then ends the process, if the process was started as a worker.
func beWorker() {
	dir := os.Getenv(workerDir)
	if dir == "" {
		return
	}
	if err := work(context.Background(), dir, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "weir-hunt: worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
