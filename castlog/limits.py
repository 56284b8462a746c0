"""Every bound, with its reason. Nothing else lives here, and no other file states a bound."""

# Events and payloads.
EVENT_BYTES_MAX = 256 * 1024 * 1024  # one payload is held in memory while it is hashed, twice at the worst
DEPTH_MAX = 128  # JSON readers in other languages give up soon after; ours must not depend on the caller's stack
TYPE_BYTES_MAX = 200  # a type, call id or key is an identifier, not a place for content
CALL_ID_BYTES_MAX = 500  # providers' call ids were seen up to 64 bytes; imported ones may be composed
CALL_IDS_BYTES_MAX = 32 * 1024  # of one event together: those in flight are one row of a table
CALLS_LISTED_MAX = 256  # a chunk lists this many calls in flight; more only where events since the last list pay for it
CALLS_PER_EVENT_MAX = 1000  # a record opening more is damaged, and the open list is copied into each chunk
IDEMPOTENCY_KEY_BYTES_MAX = 1000  # keys are hashed; the bound keeps headers small
NAME_BYTES_MAX = 200  # a name is part of a table key, and those end at 511 bytes
TITLE_BYTES_MAX = 1000  # one line on a screen, with room
LABEL_BYTES_MAX = 1000  # a label names a group; content belongs in events
LABELS_BYTES_MAX = 16 * 1024  # all labels together: a session is one row of a table
LABELS_MAX = 100  # all labels of a session are read whenever it is listed
FORKS_ASKED_MAX = 200  # branches looked through for the result of a call that is in flight, a millisecond each
FORKS_PER_COMMIT_MAX = 10_000  # one commit holds the write lock for about 10 us a fork

# Chunks, pieces and objects; figures were measured on a prototype.
SEAL_BYTES = 64 * 1024  # larger chunks compress better but cost more on a random read
RECORD_BYTES_MAX = 32 * 1024  # a longer record is sealed at once: the engine's values end at 64 KiB
SEAL_EVENTS = 256  # bounds the scan for calls in flight and the cost of an id in the middle
PIECE_PAYLOAD_BYTES_MIN = 8 * 1024  # from 4 KiB: 0.5 % less on disk and a third more pieces; from 16: 1.2 % more
PIECE_BYTES_MIN = 1024
PIECE_BYTES_MEAN = 4 * 1024  # sessions that repeat their history grow by 12 % at half of it, by 17 % at twice
PIECE_BYTES_MAX = 32 * 1024
PACK_BYTES = 1024 * 1024  # new pieces of one commit share a frame up to this size; a read decodes all of it
OBJECT_BYTES_MAX = 1024 * 1024 * 1024  # no object comes near; a prefix that states more is damaged
APPEND_TRIES_MAX = 100  # a large append is prepared again when its branch moved meanwhile; so often means a storm
RECENT_BYTES = 16 * 1024 * 1024  # last large payloads, kept to cut the next along them: one a branch, for dozens
AHEAD_BYTES = 4 * 1024 * 1024  # pieces beyond this are written in commits of their own, so others need not wait
PART_PAGES = 14  # objects lie in parts of at most 14 pages: LMDB never needs a long run of free ones
LEAF_PART_BYTES = (
    800  # what fills no page shares one with others; LMDB packs such parts the better the smaller they are
)

# Compaction; figures were measured on transcripts and on the plain workload.
FRAME_BYTES = 128 * 1024  # larger ones compress better, but a random read decodes all of one
DICTIONARY_BYTES = 512 * 1024  # takes about 180 KB in the store, and each thread that reads keeps one
DICTIONARY_RAW_BYTES_MIN = 2_000_000  # below, a dictionary takes more than it saves
SAMPLE_FRAMES = 192  # what a dictionary is trained on, evenly spread; more takes longer and gains nothing
SAMPLE_BYTES = 8 * 1024  # training wants many samples; a frame gives sixteen
COMPACT_THREADS_MAX = 4  # one thread reads and feeds them; more would wait for it
COMPACT_KEPT_BYTES = 4 << 30  # compressed frames kept in a temporary file, should a commit make it all begin again
MEASURED_FRAMES = 32  # compressed with and without the dictionary, to see whether it pays

# Reading.
CANDIDATES_MAX = 200  # a shell shows no more completions than fit on a screen or two
STATES_MAX = 10_000  # branches whose heads a writing store remembers, about 1 KB each
CACHE_BYTES = 16 * 1024 * 1024  # decoded objects kept by a store; one chunk with its pieces fits many times
WALK_KEPT_EVENTS = 4000  # chunks of a longer walk are not kept: it would push out all others and come back to none
REPLAY_BYTES = 64 * 1024 * 1024  # states a debugger keeps in memory, so that going back need not fold from the start
BISECT_SKIPS_MAX = 64  # states that cannot be told in a row: a long stretch of them would each be tried
TAIL_BATCH_EVENTS = 256  # events fetched in one short transaction from an open chunk
FOLLOW_SECONDS_MIN = 0.001  # a follower polls this fast just after something came, then ever slower
FOLLOW_SECONDS_MAX = 0.075  # with the quick looks at the start, no idle second has more than 20

# Engine.
KEY_BYTES_MAX = 511  # LMDB is compiled with this limit; the memory engine keeps it, so that tests mean something
VALUE_BYTES_MAX = 65_536  # a value needs a run of free pages; longer ones make a half-empty file grow
MAP_BYTES = 1 << 40  # address space asked for at first; it costs nothing where it is allowed
MAP_BYTES_MIN = 64 << 20  # with less address space than this a store cannot be used in earnest
READERS_MAX = 1024  # killed readers keep their slot until somebody sweeps; LMDB's own 126 run out
LOCK_TIMEOUT_SECONDS = 10.0  # a write takes milliseconds: who waits longer waits for something broken
LOCK_POLL_SECONDS_MIN = 0.000_1  # first pause between two tries for the write lock, half a durable commit
LOCK_POLL_SECONDS_MAX = 0.001  # longest pause: two flushes; a waiter costs a hundredth of a core at this rate
NOTE_SECONDS = 0.1  # a note on who runs what takes microseconds to write; without it the lock holds all the same
LOCK_TURN_SECONDS = 0.02  # a process that writes without a pause steps aside this often if another one waits
GATHER_SECONDS = 0.000_15  # after a group commit: those it answered are back by then, measured with 16 threads
LINGER_SECONDS = 0.002  # an event nobody waits for yet may share the flushes of one that comes soon, a few commits long
COMMITTER_SECONDS = 1.0  # a committer with nothing to do ends, so that a quiet store has no thread of its own
LOOP_BYTES = 8 * 1024  # payloads up to this are encoded by an event loop's own thread: a hop to another costs as much
GROUP_CHANGES_MAX = 1000  # one transaction holds the lock for about 20 us a change
READER_CHECK_COMMITS = 64  # how often a writer frees the places of killed readers, which keep pages from reuse
QUIET_SECONDS = 2.0  # a resize or a fork waits so long for transactions of this process, which last milliseconds
REBUILD_BATCH_BYTES = 32 << 20  # LMDB keeps what a transaction changed in memory; a rebuilt file may be larger
LOOKS_MAX = 20  # a look at a file without its locks is repeated this often when commits came in between

# Verify.
FINDINGS_PER_NAME_MAX = 1000  # a broken disk gives millions; the first of each kind say where to look
VERIFY_BATCH_ROWS = 500  # rows checked in one transaction: a few milliseconds
VERIFY_KEPT_MAX = 10_000  # answers kept in case the question comes again; more would cost memory and gain nothing
