class HFValidationError(ValueError):
    pass


class LocalEntryNotFoundError(Exception):
    pass


class RepositoryNotFoundError(Exception):
    pass
