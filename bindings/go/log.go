package limiter

import (
	"bufio"
	"context"
	"log/slog"
	"os"
)

// logPipe brings the library's log records to a slog.Logger without calling back into Go: C writes
// them to a pipe, and a goroutine reads it. A nil one logs nothing.
type logPipe struct {
	write *os.File
	upTo  int
	done  chan struct{}
}

func openLogPipe(logger *slog.Logger, level slog.Level) (*logPipe, error) {
	if logger == nil {
		return nil, nil
	}
	read, write, err := os.Pipe() // both ends non-blocking
	if err != nil {
		return nil, &Error{StatusResource, "a pipe for the log: " + err.Error()}
	}
	p := &logPipe{write: write, upTo: libraryLevel(level), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer read.Close()
		lines := bufio.NewScanner(read)
		for lines.Scan() {
			if line := lines.Text(); line != "" {
				logger.Log(context.Background(), slogLevel(line[0]), line[1:])
			}
		}
	}()
	return p, nil
}

func (p *logPipe) level() int {
	if p == nil {
		return 0
	}
	return p.upTo
}

// descriptor is the writing end's. SyscallConn, since Fd would make it block.
func (p *logPipe) descriptor() (fd uintptr) {
	if p == nil {
		return 0
	}
	if conn, err := p.write.SyscallConn(); err == nil {
		conn.Control(func(own uintptr) { fd = own })
	}
	return fd
}

func (p *logPipe) close() {
	if p != nil {
		p.write.Close()
		<-p.done
	}
}

// libraryLevel is the most talkative of the library's levels, 1 (error) to 4 (debug), that passes.
func libraryLevel(level slog.Level) int {
	switch {
	case level <= slog.LevelDebug:
		return 4
	case level <= slog.LevelInfo:
		return 3
	case level <= slog.LevelWarn:
		return 2
	case level <= slog.LevelError:
		return 1
	}
	return 0
}

func slogLevel(digit byte) slog.Level {
	switch digit {
	case '1':
		return slog.LevelError
	case '2':
		return slog.LevelWarn
	case '3':
		return slog.LevelInfo
	}
	return slog.LevelDebug
}
