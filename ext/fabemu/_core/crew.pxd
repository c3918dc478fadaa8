"""The crew: threads that step their share of the devices, window by window, beside the thread that calls.

Owns      crew_t: the threads, the turn that starts a window, the count of those that are done with it.
Invariant while a window is stepped nobody touches what is another's; between two windows only the calling thread runs.
Order     the turn is published after everything that the window reads is set; each thread counts itself done after its
          last write.
"""
from .types cimport int32_t, uint32_t
from .state cimport engine_t

cdef extern from *:
    """
    #include <pthread.h>
    #include <sched.h>
    #include <signal.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <time.h>
    #include <unistd.h>

    enum { FABEMU_STEP, FABEMU_REST, FABEMU_LEAVE };
    /* About ten microseconds: a window is over by then, or the other thread has lost its core. */
    enum { FABEMU_SPINS = 400 };

    typedef struct fabemu_crew {
        /* Written by one side each, on lines of their own. */
        _Alignas(64) uint32_t turn;
        _Alignas(64) uint32_t done;
        _Alignas(64) uint32_t calls;   /* changes when the threads are to leave their rest */
        int order;
        int32_t size;
        void (*step)(void* engine, int32_t worker);
        void* engine;
        pid_t process;                 /* a child of fork has the memory, and none of the threads */
        pthread_mutex_t lock;
        pthread_cond_t call;
        pthread_t threads[1];          /* size of them */
    } fabemu_crew;

    typedef struct fabemu_member {
        fabemu_crew* crew;
        int32_t worker;
    } fabemu_member;

    static inline void fabemu_relax(void)
    {
    #if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
    #elif defined(__aarch64__)
        __asm__ __volatile__("yield");
    #endif
    }

    /* Until *word is (same) or is no longer (!same) `value`. A core that was taken away gets the others' time. */
    static inline void fabemu_await(const uint32_t* word, uint32_t value, int same)
    {
        int spins = 0;
        while ((__atomic_load_n(word, __ATOMIC_ACQUIRE) == value) != same) {
            if (++spins < FABEMU_SPINS)
                fabemu_relax();
            else
                sched_yield();
        }
    }

    static inline double fabemu_seconds(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }

    static void* fabemu_serve(void* argument)
    {
        fabemu_member member = *(fabemu_member*)argument;
        fabemu_crew* crew = member.crew;
        uint32_t calls = 0, turn = 0;
        free(argument);
        for (;;) {
            pthread_mutex_lock(&crew->lock);
            while (crew->calls == calls)
                pthread_cond_wait(&crew->call, &crew->lock);
            calls = crew->calls;
            pthread_mutex_unlock(&crew->lock);
            for (;;) {
                fabemu_await(&crew->turn, turn, 0);
                turn = __atomic_load_n(&crew->turn, __ATOMIC_ACQUIRE);
                int order = crew->order;
                if (order == FABEMU_STEP)
                    crew->step(crew->engine, member.worker);
                __atomic_fetch_add(&crew->done, 1, __ATOMIC_ACQ_REL);
                if (order == FABEMU_LEAVE)
                    return NULL;
                if (order == FABEMU_REST)
                    break;
            }
        }
    }

    static void fabemu_crew_call(fabemu_crew* crew)
    {
        pthread_mutex_lock(&crew->lock);
        crew->calls++;
        pthread_cond_broadcast(&crew->call);
        pthread_mutex_unlock(&crew->lock);
    }

    static inline void fabemu_crew_begin(fabemu_crew* crew, int order)
    {
        crew->order = order;
        __atomic_store_n(&crew->done, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&crew->turn, crew->turn + 1, __ATOMIC_RELEASE);
    }

    static inline void fabemu_crew_await(fabemu_crew* crew)
    {
        fabemu_await(&crew->done, (uint32_t)crew->size, 1);
    }

    /* Ends the threads and frees the crew. */
    static void fabemu_crew_end(fabemu_crew* crew)
    {
        if (crew->process != getpid()) {
            free(crew);
            return;
        }
        if (crew->size > 0) {
            fabemu_crew_call(crew);
            fabemu_crew_begin(crew, FABEMU_LEAVE);
            for (int32_t index = 0; index < crew->size; index++)
                pthread_join(crew->threads[index], NULL);
        }
        pthread_cond_destroy(&crew->call);
        pthread_mutex_destroy(&crew->lock);
        free(crew);
    }

    /* `size` threads at rest, for workers 1 to size; NULL if the system gives fewer. */
    static fabemu_crew* fabemu_crew_new(void* engine, void (*step)(void*, int32_t), int32_t size)
    {
        fabemu_crew* crew = NULL;
        sigset_t all, before;
        if (posix_memalign((void**)&crew, 64, sizeof(fabemu_crew) + (size_t)size * sizeof(pthread_t)) != 0)
            return NULL;
        crew->turn = crew->done = crew->calls = 0;
        crew->order = FABEMU_REST;
        crew->size = 0;
        crew->step = step;
        crew->engine = engine;
        crew->process = getpid();
        pthread_mutex_init(&crew->lock, NULL);
        pthread_cond_init(&crew->call, NULL);
        /* Signals are for the interpreter's main thread. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (crew->size < size) {
            fabemu_member* member = malloc(sizeof(fabemu_member));
            if (member == NULL)
                break;
            member->crew = crew;
            member->worker = crew->size + 1;
            if (pthread_create(&crew->threads[crew->size], NULL, fabemu_serve, member) != 0) {
                free(member);
                break;
            }
            crew->size++;
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (crew->size < size) {
            fabemu_crew_end(crew);
            return NULL;
        }
        return crew;
    }
    """
    enum:
        ORDER_STEP "FABEMU_STEP"
        ORDER_REST "FABEMU_REST"
    ctypedef struct crew_t "fabemu_crew":
        int32_t size
    double crew_seconds "fabemu_seconds"() noexcept nogil
    crew_t* crew_new "fabemu_crew_new"(void* engine, void (*step)(void*, int32_t) noexcept nogil,
                                       int32_t size) noexcept nogil
    void crew_end "fabemu_crew_end"(crew_t* crew) noexcept nogil
    void crew_wake "fabemu_crew_call"(crew_t* crew) noexcept nogil
    void crew_order "fabemu_crew_begin"(crew_t* crew, int order) noexcept nogil
    void crew_gather "fabemu_crew_await"(crew_t* crew) noexcept nogil


cdef inline void crew_call(engine_t* e) noexcept nogil:
    """Get the threads from their rest; they wait for the first window."""
    crew_wake(<crew_t*>e.crew)


cdef inline void crew_begin(engine_t* e) noexcept nogil:
    """Let every thread step its share of the window that is open."""
    crew_order(<crew_t*>e.crew, ORDER_STEP)


cdef inline void crew_await(engine_t* e) noexcept nogil:
    """Wait until every thread is done with the window."""
    crew_gather(<crew_t*>e.crew)


cdef inline void crew_dismiss(engine_t* e) noexcept nogil:
    """Send the threads to rest, where they use no time."""
    crew_order(<crew_t*>e.crew, ORDER_REST)
    crew_gather(<crew_t*>e.crew)
