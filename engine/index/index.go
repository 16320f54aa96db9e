// Package index answers quickly what a store says slowly: which results it has, and how its runs stand.
//
// The manifests and each run's events.jsonl are the truth. What was read of them is kept in one SQLite file beside
// them, STORE/index.sqlite, so that the next question reads only what is new. Start with Open; Results and Run answer
// as the truth would, with the index or without it.
//
// The file is never trusted beyond what it proves. Every row carries the stamp (size, time, inode) of the file that it
// was read from and a checksum of itself; a row that does not fit is read again from the truth. So the file may be
// deleted, cut short, garbled, locked, or made by someone else at any time, and a store may be read-only: answers stay
// the same and only take longer. That is also why it needs neither a journal beside it, which could outlive it, nor a
// sync. Nothing but questions writes it; a run opens no database.
//
// It can be asked with any SQLite: the columns of tables results, runs and nodes are taken from the JSON in data.
package index

import (
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"rcgrpo/engine/artifact"
)

// FileName is the index's file in the store's folder.
const FileName = "index.sqlite"

// Who made the file, and of which form its tables are; a file that says otherwise is made anew.
const (
	applicationID = 0x72636772 // "rcgr"
	formVersion   = 1
)

const schema = `
CREATE TABLE results (key TEXT PRIMARY KEY, stamp TEXT, sum INTEGER, data TEXT,
	experiment AS (data->>'experiment'), address AS (data->>'address'), kind AS (data->>'kind'),
	bytes AS (data->>'bytes'), seconds AS (data->>'seconds'), started AS (data->>'started')) WITHOUT ROWID;
CREATE TABLE runs (name TEXT PRIMARY KEY, stamp TEXT, sum INTEGER, data TEXT,
	experiment AS (data->>'$.Status.Experiment'), started AS (data->>'$.Status.Started'),
	ended AS (data->>'$.Status.Ended'), revision AS (data->>'$.Status.Revision')) WITHOUT ROWID;
CREATE TABLE nodes (run TEXT, n INTEGER, address TEXT, listed INTEGER, sum INTEGER, data TEXT,
	state AS (data->>'State'), seconds AS (data->>'Seconds'), PRIMARY KEY (run, n)) WITHOUT ROWID;
CREATE UNIQUE INDEX node_address ON nodes (run, address);
CREATE INDEX node_listed ON nodes (run, n) WHERE listed;
`

// Index is the index of a store. It is for one goroutine; any number of processes may have one each.
type Index struct {
	store  *artifact.Store
	db     *sql.DB // nil: there is no file that can be used
	spoilt bool    // the file is damaged or not ours: it is removed before the next write
	off    bool    // not even tried
}

// Open opens the index of a store, if there is one that can be used. It never fails.
func Open(store *artifact.Store) *Index {
	x := &Index{store: store}
	db, err := x.connect()
	if err != nil {
		x.fault(err)
		return x
	}
	x.db = db
	return x
}

// Without answers from the truth alone and writes nothing.
func Without(store *artifact.Store) *Index { return &Index{store: store, off: true} }

// Close ends the use of the index.
func (x *Index) Close() {
	if x.db != nil {
		x.db.Close() // nothing is lost by an error: what was committed is in the file, the rest in the truth
		x.db = nil
	}
}

func (x *Index) path() string { return filepath.Join(x.store.Dir(), FileName) }

var errNotOurs = errors.New("not an index of this form")

// connect opens the file as it is, without making one, and looks who made it.
func (x *Index) connect() (*sql.DB, error) {
	info, err := os.Stat(x.path())
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 { // another process is making it
		return nil, os.ErrNotExist
	}
	db, err := open(x.path())
	if err != nil {
		return nil, err
	}
	var id, form int
	err = errors.Join(db.QueryRow("PRAGMA application_id").Scan(&id), db.QueryRow("PRAGMA user_version").Scan(&form))
	if err == nil && (id != applicationID || form != formVersion) {
		err = errNotOurs
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// open prepares one connection. A reader that meets a writer at its commit waits for some milliseconds and then does
// without. No page goes to the file before the commit, so readers go on until then.
func open(path string) (*sql.DB, error) {
	settings := url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(30)", "journal_mode(memory)",
		"synchronous(off)", "cache_spill(off)", "cache_size(-32768)"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+settings.Encode())
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// view begins a look at one state of the index; nil when there is none to look at. Rollback ends it.
func (x *Index) view() *sql.Tx {
	if x.db == nil {
		return nil
	}
	tx, err := x.db.Begin()
	if err != nil {
		x.fault(err)
		return nil
	}
	return tx
}

// fault takes in an error of the database: from here on the truth answers. A file that is only locked, read-only or
// out of reach stays; any other is removed before the next write.
func (x *Index) fault(err error) {
	x.Close()
	var code *sqlite.Error
	switch {
	case errors.As(err, &code):
		switch code.Code() & 0xff {
		case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
			sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS, sqlite3.SQLITE_FULL, sqlite3.SQLITE_NOMEM:
			x.off = true
			return
		}
		x.spoilt = true
	case errors.Is(err, os.ErrNotExist):
	case errors.Is(err, os.ErrPermission):
		x.off = true
	default:
		x.spoilt = true
	}
}

// write adds to the index what was read from the truth. When that cannot be done, the next question reads it again.
func (x *Index) write(add func(tx *sql.Tx) error) {
	if x.off {
		return
	}
	if x.spoilt {
		x.Close()
		if err := os.Remove(x.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return
		}
		x.spoilt = false
	}
	if x.db == nil {
		f, err := os.OpenFile(x.path(), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil { // no store yet, or a read-only one
			return
		}
		f.Close()
		if x.db, err = open(x.path()); err != nil {
			x.db = nil
			return
		}
	}
	tx, err := x.db.Begin()
	if err == nil {
		if err = x.form(tx); err == nil {
			err = add(tx)
		}
		if err != nil {
			tx.Rollback()
		} else {
			err = tx.Commit()
		}
	}
	if err != nil && !errors.Is(err, errOvertaken) {
		x.fault(err)
	}
}

// form makes the tables of a new file.
func (x *Index) form(tx *sql.Tx) error {
	var form, tables int
	err := errors.Join(tx.QueryRow("PRAGMA user_version").Scan(&form), tx.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables))
	switch {
	case err != nil:
		return err
	case form == formVersion && tables > 0:
		return nil
	case form != 0 || tables > 0:
		return errNotOurs
	}
	_, err = tx.Exec(schema + fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", applicationID, formVersion))
	return err
}

// sum is the checksum of a row's columns.
func sum(columns ...string) int64 {
	return int64(crc32.Checksum([]byte(strings.Join(columns, "\x00")), crc32.MakeTable(crc32.Castagnoli)))
}
