#include <limiter.hpp>

int other();

int other() {
    const std::error_code code = limiter::Status::denied;
    return code == limiter::Condition::refused && &code.category() == &limiter::category() ? 0 : 1;
}
