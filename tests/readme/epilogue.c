    }
    limiter_free(limiter);
    limiter_client_free(client);
    return 0;
}
