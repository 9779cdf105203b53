// A stub to link against; at run time the system's libpthread.so.0 or libc is used.
extern "C" {

#define QOLA_NAME(name) \
    __attribute__((visibility("default"))) void name() {}

QOLA_NAME(pthread_create)
QOLA_NAME(pthread_detach)
QOLA_NAME(pthread_getspecific)
QOLA_NAME(pthread_join)
QOLA_NAME(pthread_key_create)
QOLA_NAME(pthread_key_delete)
QOLA_NAME(pthread_mutex_trylock)
QOLA_NAME(pthread_once)
QOLA_NAME(pthread_rwlock_rdlock)
QOLA_NAME(pthread_rwlock_tryrdlock)
QOLA_NAME(pthread_rwlock_trywrlock)
QOLA_NAME(pthread_rwlock_unlock)
QOLA_NAME(pthread_rwlock_wrlock)
QOLA_NAME(pthread_setspecific)
QOLA_NAME(pthread_sigmask)
}
